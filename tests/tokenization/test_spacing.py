"""Chinese characters are joined, Latin words and numbers are not."""

from __future__ import annotations

import pytest

from bertine.tokenization.sentences import close_up, close_up_places


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
    assert close_up(apart) == joined
    text, places = close_up_places(apart)
    assert text == joined
    assert len(places) == len(apart) + 1
    assert places[-1] == len(joined)
    for place, character in zip(places, apart, strict=False):
        assert character == " " or joined[place] == character
