"""Chinese characters are joined, Latin words and numbers are not."""

from __future__ import annotations

import pytest

from bertine.tokenization.sentences import cjk_space_places, remove_cjk_spaces


@pytest.mark.parametrize(
    ("apart", "joined"),
    [
        ("北 京 是 中 国 的 首 都 。", "北京是中国的首都。"),
        ("在 2019 年 ， 他 用 BERT 写 了 3 篇", "在 2019 年，他用 BERT 写了 3 篇"),
        ("中 国 的 首 [MASK] 是 北 京", "中国的首[MASK]是北京"),
        ("the [MASK] sleeps in the sofa.", "the [MASK] sleeps in the sofa."),
        ("他 说 “ 好 ” ， （ 笑 ）", "他说“好”，（笑）"),
        ("東 京 の タワー です 。", "東京のタワーです。"),
        ("한국어 문장 입니다", "한국어 문장 입니다"),
        ("", ""),
    ],
)
def test_characters_are_joined_and_words_are_not(apart: str, joined: str) -> None:
    assert remove_cjk_spaces(apart) == joined
    text, places = cjk_space_places(apart)
    assert text == joined
    assert len(places) == len(apart) + 1
    assert places[-1] == len(joined)
    for place, character in zip(places, apart, strict=False):
        assert character == " " or joined[place] == character
