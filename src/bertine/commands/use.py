"""Declare the commands that use or publish a model, from ``predict`` to ``serve``."""

from __future__ import annotations

import os
import sys
from argparse import SUPPRESS
from typing import Any, get_args

from bertine.commands.parser import (
    Command,
    Parser,
    Switch,
    add_texts_argument,
    read_what_is_piped_in,
    whole,
)
from bertine.core.names import (
    MASKS,
    WORDPIECE_MASK,
    ActivationName,
    ExplanationMethod,
    ExportFormat,
)

# ``bertine predict``: answers for texts, or for a file of texts.


def _add_predict_arguments(parser: Parser) -> None:
    parser.add_model(
        "a fine-tuned model directory, or what 'bertine export' made of one; for pairs also a "
        "BERT or ALBERT that was only pre-trained: is the second sentence the next one, is the "
        "order right?"
    )
    add_texts_argument(parser)
    parser.add_argument("--question", metavar="TEXT", help="for spans: a question about --context")
    parser.add_argument("--context", metavar="TEXT", help="for spans: the text with the answer")
    parser.add_argument(
        "--input",
        "--data",
        metavar="FILE",
        help="csv, tsv, jsonl, Parquet, a workbook, a file of an annotation tool, or plain text "
        "with one text a line; for spans also SQuAD's JSON; for a tagger also column files of "
        "words; - is standard input (not given: what is piped in)",
    )
    parser.add_output(
        "where the answers go, in the format of the input (of Parquet, and tags of plain "
        "text: jsonl); named .jsonl, .parquet or .xlsx: that; - is standard output",
        default="-",
    )
    # Before the switch: a configuration file gives its name a value.
    parser.add_argument(
        "--nbest",
        dest="all_probabilities",
        action="store_const",
        const=True,
        default=SUPPRESS,
        help="of spans: the 20 best answers of each question; the same as --all-probabilities",
    )
    parser.add_argument(
        "--all-probabilities", action=Switch, help="of every label, not of the best alone"
    )


def _run_predict(values: dict[str, Any]) -> None:
    if PREDICT.brief(values):
        # NumPy's library starts a thread for each core, which takes longer than a few texts need.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from bertine import predict
    from bertine.core.console import log_all

    read_what_is_piped_in(values, "predict", "texts", "question", "context")
    # The answers are the result; the report on them is a note.
    log_all(predict(**values).lines())


PREDICT = Command(
    name="predict",
    summary="answer texts, or a file of texts",
    description="Answer texts with a fine-tuned model. A file's answers come in its order and its\n"
    "format, its columns kept.\n\n"
    '    bertine predict MODEL "a text" "another"\n'
    '    bertine predict MODEL --question "Who wrote it?" --context "Ada wrote it."\n'
    "    bertine predict MODEL --input texts.csv --output answers.csv\n"
    "    sort texts.txt | bertine predict MODEL",
    add_arguments=_add_predict_arguments,
    options="bertine.options.inference:PredictOptions",
    run=_run_predict,
    brief=lambda values: bool(values["texts"] or values["question"]),
)


# ``bertine evaluate``: score a model on labelled examples, or on held-out text.


def _add_evaluate_arguments(parser: Parser) -> None:
    parser.add_model("a model directory")
    parser.require_path(
        "--data",
        "PATH",
        "a file with the columns the model was trained with, or a folder with dev.*, val.* "
        "or validation.*; for a pre-trained model, a token store of other text, for an ELMo that "
        "text itself; or minimal pairs as BLiMP has them",
    )


EVALUATE = Command(
    name="evaluate",
    summary="score a model on labelled examples, or on held-out text",
    description="Score a fine-tuned model on labelled examples, beside the majority class; or a\n"
    "pre-trained one on a token store (MLM loss, perplexity, accuracy; NSP accuracy), an\n"
    "ELMo that was trained here on text (the perplexity of both directions), or either on\n"
    "minimal pairs: how often it finds the right sentence more probable than the wrong one.",
    add_arguments=_add_evaluate_arguments,
    options="bertine.options.inference:EvaluateOptions",
)


# ``bertine explain``: the contribution of each word of a text to an answer.


def _add_explain_arguments(parser: Parser) -> None:
    parser.add_model("a fine-tuned model directory")
    add_texts_argument(parser)
    parser.add_argument(
        "--input",
        "--data",
        metavar="FILE",
        help="csv, tsv, jsonl, Parquet, or plain text with one text a line; - is standard input "
        "(not given: what is piped in)",
    )
    parser.add_output(
        "write JSON lines there, with the columns of the input; - is standard output (not "
        "given: a table for each text is printed)",
    )
    parser.add_argument(
        "--method",
        choices=get_args(ExplanationMethod),
        default="leave-one-out",
        help="leave-one-out: what the answer loses without the word; integrated-gradients: "
        "contributions that add up, from a text of nothing but masks",
    )
    parser.add_argument(
        "--label",
        metavar="LABEL",
        help="the label to explain; for a tagger the type of the entities (not given: the answer)",
    )
    parser.add_argument(
        "--word",
        metavar="WORD",
        help="of a tagger: explain the tag of this word alone, at its first place in the text (not "
        "given: the tags of all entities together)",
    )


def _run_explain(values: dict[str, Any]) -> None:
    from bertine import explain
    from bertine.core.console import log_all

    read_what_is_piped_in(values, "explain", "texts")
    report = explain(**values)
    if values["output"] is None:
        print("\n".join(report.lines()).rstrip("\n"))
        return
    log_all(report.lines())


EXPLAIN = Command(
    name="explain",
    summary="show which words an answer hangs on",
    description="Show what each word of a text contributes to the model's answer:\n\n"
    '    bertine explain MODEL "Arrived late, but what a book."\n'
    "    bertine explain MODEL --input new.csv --output explained.jsonl",
    add_arguments=_add_explain_arguments,
    options="bertine.options.inference:ExplainOptions",
    run=_run_explain,
    brief=lambda values: bool(values["texts"]),
)


# ``bertine generate``: texts generated by a model.


def _add_generate_arguments(parser: Parser) -> None:
    parser.add_model("a model directory of a type that writes texts: openai-gpt, bart")
    parser.add_argument(
        "texts",
        metavar="TEXT",
        nargs="*",
        default=None,
        help="a text to go on with (of bart: to read), or several",
    )
    parser.add_argument(
        "--input",
        metavar="FILE",
        help="such texts: csv, tsv, jsonl, Parquet, or plain text with one text a line; - is "
        "standard input (not given: what is piped in)",
    )
    parser.add_output(
        "write the rows of the input there, with a column of what was written; of plain text "
        "a line for each text; named .csv, .jsonl, .parquet or .xlsx: that; - is standard output "
        "(not given: the texts are printed, each on a line)",
    )


def _run_generate(values: dict[str, Any]) -> None:
    from bertine import generate
    from bertine.core.text import printable

    read_what_is_piped_in(values, "generate", "texts")
    if values["output"] is None and sys.stdout.isatty():
        # Token by token: text that was printed does not change.
        generate(**values, on_text=lambda text: print(printable(text), end="", flush=True))
        return
    print("\n".join(generate(**values).lines()), file=_where(values))


def _where(values: dict[str, Any]) -> Any:
    """Return the stream for the report: stderr if the rows went to stdout."""
    return sys.stderr if values["output"] == "-" else sys.stdout


GENERATE = Command(
    name="generate",
    summary="write texts: go on with one, or answer it",
    description="Write texts with a model that guesses the next token: GPT-1 goes on with a text,\n"
    "BART reads one and writes another. The most probable token each time, unless tokens are\n"
    "drawn (--sample) or several texts are followed at once (--beams).\n\n"
    '    bertine generate MODEL "Once upon a time"\n'
    '    bertine generate MODEL "Once upon a time" --sample --top-p 0.9 --seed 3\n'
    "    bertine generate MODEL --input prompts.csv --output written.csv --beams 4",
    add_arguments=_add_generate_arguments,
    options="bertine.options.inference:GenerateOptions",
    run=_run_generate,
    brief=lambda values: bool(values["texts"]),
)


# ``bertine fill-mask``: the predictions of a pre-trained model for a mask.


def _add_fill_mask_arguments(parser: Parser) -> None:
    parser.add_model(
        "a pre-trained model directory, or bertine-en or bertine-zh, which are in the package"
    )
    parser.add_argument("text", metavar="TEXT", help=f"a text with a mask in it ({MASKS})")
    parser.add_argument(
        "--top-k", metavar="K", type=whole(1), default=5, help="candidates for each mask"
    )


FILL_MASK = Command(
    name="fill-mask",
    summary=f"guess the words behind {WORDPIECE_MASK}",
    description=f"Guess the words behind {WORDPIECE_MASK}:\n\n"
    f'    bertine fill-mask MODEL "The capital of France is {WORDPIECE_MASK}."',
    add_arguments=_add_fill_mask_arguments,
)


# ``bertine embed``: vectors for a file of texts.


def _add_embed_arguments(parser: Parser) -> None:
    parser.add_model(
        "a model directory of any kind, bertine-en, bertine-zh, or vectors of words, of which "
        "a text gets the mean of its words'"
    )
    parser.add_argument(
        "--input",
        metavar="FILE",
        help="csv, tsv, jsonl, Parquet, or plain text with one text a line; - is standard input "
        "(not given: what is piped in)",
    )
    parser.add_output(
        ".npy: the numbers alone; .parquet or .jsonl: the columns of the input and the vector",
        required=True,
    )


def _run_embed(values: dict[str, Any]) -> None:
    from bertine import embed

    read_what_is_piped_in(values, "embed")
    print("\n".join(embed(**values).lines()))


EMBED = Command(
    name="embed",
    summary="turn the texts of a file into vectors",
    description="Turn the texts of a file into vectors, in their order. The modules of a\n"
    "sentence-transformers directory (pooling, normalizing, maximum length) hold:\n\n"
    "    bertine embed MODEL --input texts.csv --output vectors.npy",
    add_arguments=_add_embed_arguments,
    options="bertine.options.inference:EmbedOptions",
    run=_run_embed,
)


# ``bertine similar``: the texts of a file that are nearest to a text.


def _add_similar_arguments(parser: Parser) -> None:
    parser.add_argument(
        "query", metavar="QUERY", nargs="?", help="a text (not given: those of --queries)"
    )
    parser.add_path(
        "--queries",
        "FILE",
        "a file of queries in place of one: its column query, text or sentence, or a text on "
        "each line",
    )
    parser.add_argument(
        "--in",
        "--input",
        dest="input",
        metavar="FILE",
        help="texts (csv, tsv, jsonl, Parquet, plain text), or vectors that 'bertine embed' wrote "
        "(.npy, .parquet, .jsonl; not given: with vectors of words, the words themselves)",
    )
    parser.add_path(
        "--model",
        "MODEL",
        "a model directory of any kind, or vectors of words (not given: the model that made "
        "the vectors)",
    )
    parser.add_path(
        "--texts", "FILE", "the file that a .npy was made of (not given: rows are shown by number)"
    )
    parser.add_path(
        "--index",
        "DIR",
        "what 'bertine index-vectors' made of a .npy: a part of the vectors is read (not "
        "given: all)",
    )
    parser.add_output(
        "write a row for each of the nearest rows of each query, with all columns of both: "
        ".csv, .tsv, .jsonl, .parquet or .xlsx; - is standard output (not given: they are printed)",
    )
    parser.add_argument("--top", metavar="N", type=whole(1), default=10, help="rows to show")


def _run_similar(values: dict[str, Any]) -> None:
    from bertine import similar
    from bertine.core.console import log_all

    report = similar(**values)
    if str(values["output"]) != "-":
        print("\n".join(report.lines()))
        return
    log_all(report.lines())


SIMILAR = Command(
    name="similar",
    summary="find the texts of a file nearest to a text",
    description="Find the texts of a file that are nearest to a text, by the cosine of their\n"
    "vectors:\n\n"
    '    bertine similar "a late delivery" --in reviews.csv --model MODEL\n\n'
    "Many queries at once, and their nearest rows as a table:\n\n"
    "    bertine similar --queries questions.csv --in answers.csv --model MODEL \\\n"
    "        --output nearest.csv\n\n"
    "With vectors of words (bertine word2vec) and no --in, find the nearest words. With\n"
    "--word compare one word as it stands in each text:\n\n"
    '    bertine similar "the bank of the river" --word bank --in texts.txt --model MODEL',
    add_arguments=_add_similar_arguments,
    options="bertine.options.inference:SimilarOptions",
    run=_run_similar,
)


# ``bertine index-vectors``: an index of vectors, for searching among many.


def _add_index_vectors_arguments(parser: Parser) -> None:
    parser.add_path("vectors", "VECTORS", "a .npy that 'bertine embed' wrote")
    parser.require_path("--out", "DIR", "folder of the index")


INDEX_VECTORS = Command(
    name="index-vectors",
    summary="make an index of vectors, for many searches among many",
    description="Make an index of vectors, with which 'bertine similar' reads a small part of\n"
    "them for each query. Its scores are exact, but some of the nearest rows may be\n"
    "missed: how many is measured. Needs the package faiss-cpu. Without an index a\n"
    "search reads all vectors, which takes some tenths of a second for a million, so an\n"
    "index is for thousands of queries, or for several million vectors:\n\n"
    "    bertine index-vectors vectors.npy --out vectors-index\n"
    "    bertine similar --queries queries.txt --in vectors.npy --index vectors-index \\\n"
    "        --texts texts.csv --model MODEL --output nearest.csv",
    add_arguments=_add_index_vectors_arguments,
    options="bertine.options.vectors:IndexOptions",
)


# ``bertine serve``: answers over HTTP.


def _add_serve_arguments(parser: Parser) -> None:
    parser.add_argument(
        "models",
        metavar="MODEL",
        nargs="+",
        help="a model directory, or NAME=MODEL; the first answers requests that name none",
    )


SERVE = Command(
    name="serve",
    summary="answer over HTTP, with a page to try",
    description="Answer over HTTP: predictions, filled masks, vectors, and a page to try them on.\n"
    "Needs fastapi, uvicorn, httptools and prometheus-client. SIGTERM or Ctrl-C ends it;\n"
    "requests that have begun are answered.",
    add_arguments=_add_serve_arguments,
    options="bertine.options.inference:ServeOptions",
    examples="bertine serve reviews-model\nbertine serve reviews-model --port 8080",
    common="--host --port --api-key-file --allowed-hosts --precision --device --max-wait-ms "
    "--config",
)


# ``bertine export``: a model as a graph that runs without Bertine.


def _add_export_arguments(parser: Parser) -> None:
    parser.add_model("a model directory of any kind")
    parser.require_output_folder("folder to write; an earlier export there is replaced")
    parser.add_argument(
        "--format",
        choices=get_args(ExportFormat),
        default="onnx",
        help="onnx: model.onnx (needs onnx, onnxruntime, onnxscript); torch: model.pt2, a program "
        "of torch.export",
    )
    parser.add_argument(
        "--int8", action=Switch, help="of onnx: also write model.int8.onnx, with int8 weights"
    )
    parser.add_path(
        "--data",
        "PATH",
        "labelled examples to score model and graph on, read as by 'bertine evaluate': a file "
        "with the columns the model was trained with, or a folder with dev.*, val.* or "
        "validation.* (not given: no scores)",
    )


EXPORT = Command(
    name="export",
    summary="write a model as ONNX or as a PyTorch program",
    description="Write a model as a graph that runs without Bertine, for batches and texts of any\n"
    "size, compare its answers with the model's, and score both on labelled examples. A\n"
    "fine-tuned model gives its logits; any other, or with one of the options for vectors, the\n"
    "vectors of texts:\n\n"
    "    bertine export MODEL --output exported --int8 --data held-out.csv",
    add_arguments=_add_export_arguments,
    options="bertine.options.inference:ExportOptions",
)


# ``bertine convert``: any model directory in Hugging Face's format.


def _add_convert_arguments(parser: Parser) -> None:
    parser.add_model(
        "a model directory of any kind: Google's with a TensorFlow checkpoint, or one with "
        "pytorch_model.bin; a folder of ELMo's published options and weights; or vectors of words, "
        "a folder of word2vec or a .bin, .txt or .vec file"
    )
    parser.require_output_folder(
        "folder to write; a model directory there is replaced (of vectors of words a folder, "
        "or a .bin, .txt or .vec file)"
    )
    parser.add_argument(
        "--hidden-act",
        choices=get_args(ActivationName),
        help="the activation, in place of what the model directory says or Google's checkpoint was "
        "taken to mean: gelu is with erf, gelu_new with tanh (not given: as it is)",
    )


CONVERT = Command(
    name="convert",
    summary="write a model as a Hugging Face directory",
    description="Write a model as a Hugging Face model directory, which transformers opens too:\n"
    "config.json, model.safetensors and the tokenizer. TensorFlow is not needed:\n\n"
    "    bertine convert uncased_L-12_H-768_A-12 --out bert-base-uncased",
    add_arguments=_add_convert_arguments,
)


# ``bertine glue-submission``: predictions for the GLUE leaderboard.


def _add_glue_submission_arguments(parser: Parser) -> None:
    parser.add_path(
        "models",
        "MODEL",
        "models of 'bertine finetune glue', or the folder of 'bertine finetune glue --all'",
        nargs="+",
    )
    parser.require_path(
        "--data", "DIR", "the folder of GLUE's tasks' folders, with their test files"
    )
    parser.require_path("--out", "FILE", "the zip file to write")


GLUE_SUBMISSION = Command(
    name="glue-submission",
    summary="predict GLUE's test files, zipped for the leaderboard",
    description="Predict GLUE's test files and zip the answers as the leaderboard wants them:\n"
    "CoLA.tsv, SST-2.tsv, MRPC.tsv, STS-B.tsv, QQP.tsv, MNLI-m.tsv, MNLI-mm.tsv, QNLI.tsv,\n"
    "RTE.tsv, WNLI.tsv, AX.tsv. The ones for which there is no model are named.",
    add_arguments=_add_glue_submission_arguments,
    options="bertine.options.training:TrainedMachine",
)
