"""The public verbs with every argument. Made by tools/write_signatures.py."""

from collections.abc import Sequence
from pathlib import Path

from bertine.core.names import (
    ActivationName,
    AnswerPrecision,
    ClassWeights,
    DistillKind,
    ExplanationMethod,
    ExportFormat,
    FeatureTask,
    FewShotTask,
    FewShotWeights,
    Initialization,
    InputFormat,
    LabelledFormat,
    LmSoftmax,
    LongText,
    MapKind,
    MaskedPieces,
    Masking,
    NearDuplicates,
    ObjectiveName,
    OptimizerName,
    PairKind,
    PairLossName,
    PairReading,
    PlainFormat,
    PoolingName,
    Precision,
    ScheduleName,
    SegmenterName,
    SoftmaxName,
    SoftTokens,
    SpecialStyle,
    StaticPrecision,
    StaticWeights,
    TagScheme,
    TaskName,
    TeacherTask,
    TextFormat,
    TokenizerKind,
    TokenTypesOfTeacher,
    TrainedPooling,
    VectorPooling,
    VectorType,
    WordSplitting,
    WordVectorModel,
)
from bertine.corpora.prepare import PrepareReport
from bertine.data.in_memory import TableLike
from bertine.datasets.readers import DatasetSplits
from bertine.hub.model_directory import LoadedModel
from bertine.inference.convert import Conversion, VectorConversion
from bertine.inference.embedding.embed import EmbedReport
from bertine.inference.embedding.embedder import Embedder
from bertine.inference.embedding.index import IndexReport, Neighbours
from bertine.inference.embedding.similar import BatchSearch
from bertine.inference.explaining.explain import Explanations
from bertine.inference.export_graph import ExportReport
from bertine.inference.generate import GeneratedTexts, OnText
from bertine.inference.minimal_pairs.evaluate_pairs import MinimalPairsReport
from bertine.inference.predict import PredictReport, SquadPredictReport
from bertine.inference.predict_files import GivenTextsReport, TagReport
from bertine.inference.predictor import Predictor
from bertine.inference.rows import TextOrDict
from bertine.papers.table import PaperResult
from bertine.reports.inspect import Inspection
from bertine.serving.serve import ServeReport
from bertine.tasks.report import EvaluationReport
from bertine.tokenization.vocab import VocabReport
from bertine.training.distillation.static import StaticResult
from bertine.training.distillation.teacher_on_task import Distilled
from bertine.training.elmo import ElmoResult
from bertine.training.feature_based.features import FeatureBasedReport
from bertine.training.finetuning.learner import Learner
from bertine.training.label_check import LabelCheck
from bertine.training.learning_curve.result import LearningCurve
from bertine.training.lr_find import LrFindReport
from bertine.training.pretraining.result import PretrainResult
from bertine.training.search.table import SearchResult
from bertine.training.similarity.fitting import SimilarityResult
from bertine.word_vectors.train import Word2VecReport
from bertine.word_vectors.vectors import NearestWords

def blimp(
    model: Path | str,
    *,
    data: Path | str | None = None,
    show_progress: bool = True,
    device: str | None = None,
    masked_pieces: MaskedPieces = "one",
    paradigms: bool = False,
    precision: Precision = "auto",
) -> MinimalPairsReport:
    """Score a pre-trained model on BLiMP: how often it gives the right one of two sentences the
    higher probability. Sentences of equal probability count as wrong.

    Masked models are scored by the pseudo-log-likelihood (Salazar et al. 2020), others by the
    probability that they were trained for: :mod:`bertine.inference.minimal_pairs.scoring`.

    Args:
        model: a model directory with the head of its pre-training.
        data: minimal pairs in place of BLiMP: JSON lines with ``sentence_good`` and
            ``sentence_bad``, or a folder of such files.
        show_progress: on stderr.
        device: cpu, cuda or cuda:1; None: the GPU if there is one.
        masked_pieces: what is hidden at a time from a masked model: one piece; or with it those of
            its word behind it, so that a word is guessed from its beginning (Kauf and Ivanova
            2023).
        paradigms: also list the accuracy of every paradigm.
        precision: number format to compute in; auto is bf16 where it is measured to be clearly
            faster here.

    Returns:
        The scores, by paradigm and by phenomenon. For BLiMP the metrics include
        ``babylm_paradigm_mean``, the mean over the paradigms of the part in the BabyLM challenge.

    Raises:
        BertineError: no such model, or one without probabilities of words; no such data, a pair
            that lacks a sentence, a sentence that is too long for the model; `masked_pieces` is
            given for a model whose pieces are not masked.
    """

def check_labels(
    data: Path | str | TableLike,
    *,
    model: Path | str,
    out: Path | str,
    text_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    format: LabelledFormat | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    paper: bool = False,
    max_length: int | None = None,
    learning_rate: float | None = None,
    precision: Precision = "auto",
    device: str | None = None,
    seed: int = 0,
    resume: bool = False,
    folds: int = 5,
    frozen: bool = False,
    processes: int = 1,
) -> LabelCheck:
    """Find labels of texts, or of pairs of texts, that are probably wrong.

    For each part of the examples, a model is fine-tuned on all other parts and predicts this one.
    Its probabilities are compared with the labels by confident learning (Northcutt et al. 2021,
    arXiv 1911.00068).

    Args:
        data: a labelled file, or a table in memory; for a folder, its training file.
        model: the model directory to start from.
        out: the folder of the check. ``out/checked.csv`` has all examples, with ``suggested_label``
            where another label is more probable: correct the labels there, and train on that file;
            an existing one is kept as it is. ``out/check-labels.json`` has the results, and
            ``out/check-labels.html`` the same as a page.
        text_columns: the text, or the two texts of a pair; None: the usual names. Of multiple
            choice what stands before the choices, the second of two beginning each of them.
        label_column: the label; None: the usual names.
        quotes: whether " quotes cells; None: in csv; in tsv where only so its rows fit the header.
        strict: refuse invalid UTF-8 and NUL bytes (and, where labels are read, rows without one)
            instead of mending, or leaving out, and counting them.
        format: format of the table; columns are column files of words; None: detected from the name
            of the file and its first lines.
        epochs: passes over the training examples; None: from 3 with many examples to 25 with few;
            more of many classes.
        batch_size: examples in an update; None: 16, or 32 with more than 4,000 examples.
        paper: use the settings of the model's paper wherever you give none, and keep the weights of
            the last epoch. BERT (Devlin et al. 2018, sections 4 and A.3): others: 3 epochs, batches
            of 32, 5e-5, also batches of 16, rates to 2e-5, 2 and 4 epochs; CoLA, SST-2, MRPC,
            STS-B, QQP, MNLI, QNLI, RTE, WNLI: 3 epochs, batches of 32, 5e-5, also rates 4e-5, 3e-5
            and 2e-5; squad/v1.1: 3 epochs, batches of 32, 5e-5; squad/v2.0: 2 epochs, batches of
            48, 5e-5; swag: 3 epochs, batches of 16, 2e-5. RoBERTa (Liu et al. 2019, table 10, and
            fairseq's README.glue.md): others: 10 epochs, batches of 16, 1e-5, warm-up 0.06, weight
            decay 0.1, also 2e-5 and 3e-5, batches of 32; CoLA, MRPC: 10 epochs, batches of 16,
            1e-5, warm-up 0.06, weight decay 0.1; RTE, STS-B: 10 epochs, batches of 16, 2e-5,
            warm-up 0.06, weight decay 0.1; SST-2, MNLI, QNLI: 10 epochs, batches of 32, 1e-5,
            warm-up 0.06, weight decay 0.1; QQP: 10 epochs, batches of 32, 1e-5, warm-up 0.25,
            weight decay 0.1; squad/v1.1, squad/v2.0: 2 epochs, batches of 48, 1.5e-5, warm-up 0.06,
            weight decay 0.01. ALBERT (Lan et al. 2019, table 14): CoLA: 10 epochs, batches of 16,
            1e-5, warm-up 0.06; STS-B: 10 epochs, batches of 16, 2e-5, warm-up 0.0595; SST-2, QNLI:
            10 epochs, batches of 32, 1e-5, warm-up 0.06; MNLI: 3 epochs, batches of 128, 3e-5,
            warm-up 0.1; QQP: 5 epochs, batches of 128, 5e-5, warm-up 0.0714; RTE: 10 epochs,
            batches of 32, 3e-5, warm-up 0.25; MRPC: 7 epochs, batches of 32, 2e-5, warm-up 0.25;
            WNLI: 50 epochs, batches of 16, 2e-5, warm-up 0.125; squad/v1.1: 2 epochs, batches of
            48, 5e-5, warm-up 0.1; squad/v2.0: 3 epochs, batches of 48, 3e-5, warm-up 0.1.
            ELECTRA-Small (Clark et al. 2020, table 7 (small)): others: 3 epochs, batches of 32,
            3e-4, warm-up 0.1, weight decay 0, layer decay 0.8; RTE, STS-B: 10 epochs, batches of
            32, 3e-4, warm-up 0.1, weight decay 0, layer decay 0.8; squad/v1.1, squad/v2.0: 2
            epochs, batches of 32, 3e-4, warm-up 0.1, weight decay 0, layer decay 0.8. ELECTRA-Base
            (Clark et al. 2020, table 7 (base)): others: 3 epochs, batches of 32, 1e-4, warm-up 0.1,
            weight decay 0, layer decay 0.8; RTE, STS-B: 10 epochs, batches of 32, 1e-4, warm-up
            0.1, weight decay 0, layer decay 0.8; squad/v1.1, squad/v2.0: 2 epochs, batches of 32,
            1e-4, warm-up 0.1, weight decay 0, layer decay 0.8. ELECTRA-Large (Clark et al. 2020,
            table 7 (large)): others: 3 epochs, batches of 32, 5e-5, warm-up 0.1, weight decay 0,
            layer decay 0.9; RTE, STS-B: 10 epochs, batches of 32, 5e-5, warm-up 0.1, weight decay
            0, layer decay 0.9; squad/v1.1, squad/v2.0: 2 epochs, batches of 32, 5e-5, warm-up 0.1,
            weight decay 0, layer decay 0.9. GPT-1 (Radford et al. 2018, section 4.1): others: 3
            epochs, batches of 32, 6.25e-5, warm-up 0.002. XLNet (Yang et al. 2019, table 8): MNLI:
            3 epochs, batches of 128, 2e-5; squad/v1.1, squad/v2.0: 3 epochs, batches of 48, 3e-5,
            layer decay 0.75. Models without such a paper: as BERT.
        max_length: tokens of an example; longer ones are cut, and counted; None: 128, spans 384.
            Contexts of spans are not cut, but read in windows.
        learning_rate: highest learning rate; None: by the width of the model.
        precision: number format to compute in; auto is bf16 where it is measured to be clearly
            faster here.
        device: cpu, cuda or cuda:1; None: the GPU if there is one.
        seed: random seed.
        resume: go on with the check in the output folder; parts that are judged are not judged
            again.
        folds: parts of the examples; each is judged by a model that was trained on the others.
        frozen: train no layer: fit the head alone, in seconds, on the vectors that the model gives
            already; mostly the better way with pairs and with few labels.
        processes: models that are trained at a time, in processes that share the cores.

    Returns:
        The result, with the most probably wrong labels first.

    Raises:
        BertineError: what reading the data raises; fewer than two labels that occur twice; a model
            that cannot be trained; `out` holds something else, a check that is not to be resumed,
            or one with other settings.
    """

def convert(
    model: Path | str,
    output: Path | str,
    *,
    hidden_act: ActivationName | None = None,
) -> Conversion | VectorConversion:
    """Write a model as a Hugging Face model directory that `transformers` opens, or word vectors in
    another format. A model directory has ``config.json``, ``model.safetensors`` and the files of
    its tokenizer.

    Args:
        model: a model directory of any kind: Google's ``bert_config.json`` with a TensorFlow
            checkpoint, or one with ``pytorch_model.bin`` or several safetensors; or ELMo's
            published options and weights, which become a directory of Bertine's own. Or vectors of
            words: a folder of :func:`~bertine.word2vec`, or a file of the word2vec program's,
            binary (``.bin``) or text (``.txt``, ``.vec``).
        output: the folder; an existing model directory is replaced. For vectors of words a folder,
            or a file ``.bin``, ``.txt`` or ``.vec``.
        hidden_act: the activation to write, in place of the one in the model directory or the one
            assumed for "gelu" in a checkpoint of Google's: "gelu" uses erf, "gelu_new" tanh. The
            weights stay the same.

    Returns:
        What was read, written and left out.

    Raises:
        BertineError: an unknown activation; no such model, or a damaged one; a model type that
            `transformers` does not have; `output` holds something else, or is the model's own
            folder.
    """

def distill(
    data: Path | str | TableLike | None = None,
    *,
    out: Path | str,
    kind: DistillKind | None = None,
    objective: ObjectiveName = "mlm",
    held_out: Path | str | None = None,
    evaluate_every: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    warmup_ratio: float | None = None,
    checkpoint_every: int | None = None,
    compile: bool | None = None,
    calibrate: bool = True,
    text_columns: Sequence[str] | str | None = None,
    epochs: int | None = None,
    teacher: Path | str | None = None,
    probabilities: Path | str | None = None,
    teacher_task: TeacherTask | None = None,
    probability_column: str | None = None,
    labels: Sequence[str] | None = None,
    label_separator: str | None = None,
    student: Path | str | None = None,
    layers: Sequence[int] | None = None,
    fresh_weights: bool = False,
    token_types: TokenTypesOfTeacher = "fold",
    temperature: float = 2.0,
    soft_weight: float = 5.0,
    mlm_weight: float = 2.0,
    cosine_weight: float = 1.0,
    cosine_projection: bool = False,
    soft_tokens: SoftTokens = "all",
    mask_smoothing: float = 0.7,
    freeze_positions: bool = False,
    freeze_token_types: bool = False,
    label_weight: float = 0.5,
    hidden_weight: float = 0.0,
    attention_weight: float = 0.0,
    hidden_mean_weight: float = 0.0,
    hidden_variance_weight: float = 0.0,
    layer_loss: MapKind = "tinybert",
    progressive_steps: int | None = None,
    steps: int | None = None,
    tokens: int | None = None,
    hours: float | None = None,
    masked_lm_prob: float = 0.15,
    max_predictions_per_seq: int | None = None,
    mask_split: Sequence[float] | None = None,
    short_seq_prob: float = 0.1,
    dupe_factor: int = 10,
    max_seq_length: int = 128,
    input_format: InputFormat | None = None,
    whole_word_mask: bool = False,
    ngrams: int = 1,
    masking: Masking = "dynamic",
    label_column: str | None = None,
    static: bool = False,
    dimensions: int = 256,
    piece_weights: StaticWeights | None = None,
    sif_coefficient: float = 0.0001,
    fit_tokens: bool = True,
    teacher_texts: int = 20000,
    add_words: int = 0,
    table_precision: StaticPrecision = "fp16",
    quotes: bool | None = None,
    strict: bool = False,
    format: LabelledFormat | None = None,
    word_column: int | None = None,
    tag_column: int | None = None,
    tag_scheme: TagScheme | None = None,
    paper: bool = False,
    max_length: int | None = None,
    split_seed: int | None = None,
    seed: int = 0,
    long_seq_length: int | None = None,
    long_share: float = 0.1,
    warmup_steps: int | None = None,
    optimizer: OptimizerName = "adamw",
    weight_decay: float = 0.01,
    adam_beta1: float = 0.9,
    adam_beta2: float = 0.999,
    adam_epsilon: float = 1e-06,
    bias_correction: bool = True,
    max_grad_norm: float = 1.0,
    max_tokens_per_micro_batch: int | None = None,
    schedule: ScheduleName = "linear",
    layer_decay: float = 1.0,
    dropout: float | None = None,
    patience: int | None = None,
    precision: Precision = "auto",
    device: str | None = None,
    keep_checkpoints: int = 2,
    log_every: int = 10,
    tensorboard: bool = False,
    save_best: bool | None = None,
    workers: int | None = None,
    resume: bool = False,
) -> PretrainResult | Distilled | StaticResult:
    """Train a small model (the student) to reproduce the outputs of a large one (the teacher).

    On a token store the student learns a language from a pre-trained teacher, and can be fine-tuned
    afterwards: soft targets, masked tokens, and the cosine of the last states (Sanh et al. 2019,
    DistilBERT). On texts of a task it learns that task from a fine-tuned teacher, or from a file of
    another model's answers; if texts have labels, these are used too. With `static` the result is a
    table with one vector for each piece of the vocabulary (model2vec of Minish Lab); the mean of a
    text's vectors replaces the teacher's vector.

    Args:
        data: a token store (``prepare``); or the texts of a task, with labels or without, as
            ``finetune`` takes them: a file, a folder with training and validation files, a table in
            memory. For a table of static vectors any texts, or None.
        out: the run's folder; the model directory is ``out/model``. For a table of static vectors
            the model directory itself.
        kind: what is learned: a language on a token store (lm), a task on its texts (task), or a
            table of static vectors; None: by the data, and `static`.
        objective: of lm: what is learned in addition to the soft targets: masked tokens, or next
            sentences too.
        held_out: of lm: store of other text, made with the same tokenizer, to evaluate on along the
            way.
        evaluate_every: of lm: steps between evaluations; None: 20 in a run. And between guesses at
            the same hidden words (``samples.jsonl``).
        batch_size: sequences, or examples, in an update; None: 32; of a task 16, or 32 with more
            than 4,000 examples.
        learning_rate: highest learning rate; None: 1e-4; of a task by the width of the model.
        warmup_ratio: share of the steps with a rising rate, where `warmup_steps` is not given;
            None: 0.01; of a task 0.1, of one-cycle 0.3.
        checkpoint_every: steps between checkpoints; None: 1000; of a task one after each epoch.
            Those of a task are removed when the model directory has been written.
        compile: on a GPU, compile the model's parts: it starts slower, to be faster from then on;
            None: on a store, not on a task.
        calibrate: of task: at the end fit a temperature on the validation examples and divide the
            head by it, so that answers are right as often as their probability says; not if the
            examples have fewer than 50 labels, or are judged by the teacher's answers. Answers stay
            the same, their probabilities change: in files, the server, exported models and other
            programs, since the weights of the head have it. Guo et al. 2017
            (:mod:`bertine.tasks.calibration`).
        text_columns: the text, or the two texts of a pair; None: the usual names. Of multiple
            choice what stands before the choices, the second of two beginning each of them.
        epochs: passes over the training examples; None: from 3 with many examples to 25 with few;
            more of many classes.
        teacher: model directory to learn from: on a store one that fills masks, on texts a
            fine-tuned one of any task.
        probabilities: of task: in place of a teacher, a file (.csv, .tsv, .jsonl, .parquet) of
            another model's probabilities: a row for each row of DATA, a column for each label, or
            one with a dictionary or a list; or a column of scores.
        teacher_task: of task: of `probabilities`: what the other model answers: one label a text
            (text), any number of them (multi-label), or a score (regression); None: text.
        probability_column: of task: of `probabilities`: the column with a dictionary, or a list in
            the order of `labels`; or with the score; None: the usual names, or a column for each
            label.
        labels: of task: of `probabilities`: the labels, in the order of a list; None: the names of
            the columns, or the keys of the dictionaries.
        label_separator: of task: of `probabilities` of the task multi-label: between labels in one
            column of DATA; None: the bar | as usual.
        student: what is trained: a model type such as distilbert (with the teacher's sizes), a
            preset, a config.json, or a model directory to begin from; None: a model of the
            teacher's type with fewer layers.
        layers: layers of the teacher, counted from 0, that the student begins with, along with its
            embeddings and heads; None: every other one: 0 2 4 7 9 11 of 12.
        fresh_weights: begin the student with random weights instead of the teacher's layers; their
            number stays the same.
        token_types: for a student without token types: add the embedding of the first type to the
            positions, or drop it as DistilBERT did.
        temperature: number that the logits of both are divided by; the loss is multiplied by its
            square.
        soft_weight: of lm: weight of the loss on the teacher's distributions over the vocabulary.
        mlm_weight: of lm: weight of the loss on the masked tokens themselves.
        cosine_weight: of lm: weight of the loss on the angle between the last states of both; their
            widths must be equal.
        cosine_projection: of lm: learn a layer between the widths, where they differ, for the
            cosine.
        soft_tokens: of lm: which tokens have soft targets: all real ones, as published, or the
            masked ones.
        mask_smoothing: of lm: choose rarer tokens for prediction more often: in proportion to their
            count in the store to minus this; 0: all alike. As in the published code, but within
            each sequence (:func:`~bertine.corpora.collators.rarer_first`).
        freeze_positions: of lm: do not train the position embeddings.
        freeze_token_types: of lm: do not train the embeddings of token types.
        label_weight: of task: the share of the labels in the loss, a mean over the rows that have
            one; the rest is the teacher's, a mean over all rows.
        hidden_weight: weight of the loss on the states of each layer, compared with those of the
            teacher's layer.
        attention_weight: weight of the loss on where the heads of each layer look.
        hidden_mean_weight: weight of the loss on the mean of each state (MobileBERT: 5000).
        hidden_variance_weight: weight of the loss on the variance of each state (MobileBERT: 5).
        layer_loss: how they are compared: squared errors of states and of scores before the
            softmax; or of normalized states, and the divergence of distributions of attention.
            MobileBERT's weights are 100 and 1.
        progressive_steps: train one layer after the other, the lowest first, for this many steps
            each, on these terms alone; then all of them; None: all layers from the first step on.
        steps: of lm: updates of the weights.
        tokens: of lm: tokens to see, such as 1e8. Turned into steps by the mean length of a batch.
        hours: of lm: wall time of the run, kept at any speed of the machine; if `steps` or `tokens`
            are given too, they are the upper limit. Evaluations and checkpoints count. The speed is
            measured first, to plan with (:mod:`bertine.training.fit`).
        masked_lm_prob: of lm: share of the tokens that are predicted.
        max_predictions_per_seq: of lm: most tokens that are predicted in a sequence; None: as many
            as their share asks for in a full one.
        mask_split: of lm: of the predicted tokens, the shares that become the mask, become a random
            token, stay; None: as in the objective's paper: 0.8 0.1 0.1, of rtd 0.85 0 0.15.
        short_seq_prob: of lm: share of segment pairs that are made shorter at random.
        dupe_factor: of lm: with static masking: number of different maskings of the text; BERT's
            paper has ten.
        max_seq_length: of lm: tokens of a sequence with its special tokens, at the most.
        input_format: of lm: what a sequence is made of; full and doc sentences need objective mlm,
            rtd, clm, denoising or plm, running text needs clm, neighbours mlm-neighbours or mlm;
            None: as in the model's paper: segment pairs for BERT and XLNet, sentence order for
            ALBERT, running text for GPT-1, full sentences for the others. One of segment-pair,
            sentence-pair, full-sentences, doc-sentences, sentence-order, neighbours and
            running-text (:mod:`bertine.corpora.formats`).
        whole_word_mask: of lm: choose whole words for prediction.
        ngrams: of lm: choose runs of up to this many tokens, or whole words, shorter ones more
            often; ALBERT's paper has 3. A run of n comes with a probability proportional to 1/n
            (:mod:`bertine.corpora.collators`).
        masking: of lm: how the tokens to predict are chosen: anew at every step, or (static) in the
            same `dupe_factor` ways again and again. See
            :class:`~bertine.corpora.pretraining_data.PretrainingData`.
        label_column: of task: the label; None: the usual names.
        static: of static: make a table with one vector for each piece of the teacher's vocabulary:
            each goes through the teacher alone; a text's vector is the mean of its pieces'. DATA
            may be left out.
        dimensions: of static: numbers of a vector: the first principal components, at most the
            teacher's.
        piece_weights: of static: what makes frequent pieces count less: how often they come in DATA
            (counts), their place in the vocabulary (rank), or nothing (none); None: counts, without
            DATA rank.
        sif_coefficient: of static: a of the weight a / (a + p) of a piece with the probability p
            (smooth inverse frequency).
        fit_tokens: of static: fit the table to the teacher's vectors of texts in DATA; otherwise
            pieces are only counted in them.
        teacher_texts: of static: number of texts of DATA, spread evenly, whose vectors the teacher
            computes to be learned from; this takes most of the time.
        add_words: of static: give this many words a vector of their own: the most frequent ones in
            DATA that are several pieces; only with WordPiece.
        table_precision: of static: number format of the file; int8 takes a quarter of the space of
            fp32 and hardly changes directions.
        quotes: whether " quotes cells; None: in csv; in tsv where only so its rows fit the header.
        strict: refuse invalid UTF-8 and NUL bytes (and, where labels are read, rows without one)
            instead of mending, or leaving out, and counting them.
        format: format of the table; columns are column files of words; None: detected from the name
            of the file and its first lines.
        word_column: of task: number of the column of the words in a column file; None: the first
            that holds no numbers.
        tag_column: of task: number of the column of the tags; None: the last that holds tags.
        tag_scheme: of task: how the tags mark entities (BILOU and BMES are IOBES in other letters);
            plain: they do not; None: detected from the tags.
        paper: of task: use the settings of the model's paper wherever you give none, and keep the
            weights of the last epoch. BERT (Devlin et al. 2018, sections 4 and A.3): others: 3
            epochs, batches of 32, 5e-5, also batches of 16, rates to 2e-5, 2 and 4 epochs; CoLA,
            SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI: 3 epochs, batches of 32, 5e-5, also
            rates 4e-5, 3e-5 and 2e-5; squad/v1.1: 3 epochs, batches of 32, 5e-5; squad/v2.0: 2
            epochs, batches of 48, 5e-5; swag: 3 epochs, batches of 16, 2e-5. RoBERTa (Liu et al.
            2019, table 10, and fairseq's README.glue.md): others: 10 epochs, batches of 16, 1e-5,
            warm-up 0.06, weight decay 0.1, also 2e-5 and 3e-5, batches of 32; CoLA, MRPC: 10
            epochs, batches of 16, 1e-5, warm-up 0.06, weight decay 0.1; RTE, STS-B: 10 epochs,
            batches of 16, 2e-5, warm-up 0.06, weight decay 0.1; SST-2, MNLI, QNLI: 10 epochs,
            batches of 32, 1e-5, warm-up 0.06, weight decay 0.1; QQP: 10 epochs, batches of 32,
            1e-5, warm-up 0.25, weight decay 0.1; squad/v1.1, squad/v2.0: 2 epochs, batches of 48,
            1.5e-5, warm-up 0.06, weight decay 0.01. ALBERT (Lan et al. 2019, table 14): CoLA: 10
            epochs, batches of 16, 1e-5, warm-up 0.06; STS-B: 10 epochs, batches of 16, 2e-5,
            warm-up 0.0595; SST-2, QNLI: 10 epochs, batches of 32, 1e-5, warm-up 0.06; MNLI: 3
            epochs, batches of 128, 3e-5, warm-up 0.1; QQP: 5 epochs, batches of 128, 5e-5, warm-up
            0.0714; RTE: 10 epochs, batches of 32, 3e-5, warm-up 0.25; MRPC: 7 epochs, batches of
            32, 2e-5, warm-up 0.25; WNLI: 50 epochs, batches of 16, 2e-5, warm-up 0.125; squad/v1.1:
            2 epochs, batches of 48, 5e-5, warm-up 0.1; squad/v2.0: 3 epochs, batches of 48, 3e-5,
            warm-up 0.1. ELECTRA-Small (Clark et al. 2020, table 7 (small)): others: 3 epochs,
            batches of 32, 3e-4, warm-up 0.1, weight decay 0, layer decay 0.8; RTE, STS-B: 10
            epochs, batches of 32, 3e-4, warm-up 0.1, weight decay 0, layer decay 0.8; squad/v1.1,
            squad/v2.0: 2 epochs, batches of 32, 3e-4, warm-up 0.1, weight decay 0, layer decay 0.8.
            ELECTRA-Base (Clark et al. 2020, table 7 (base)): others: 3 epochs, batches of 32, 1e-4,
            warm-up 0.1, weight decay 0, layer decay 0.8; RTE, STS-B: 10 epochs, batches of 32,
            1e-4, warm-up 0.1, weight decay 0, layer decay 0.8; squad/v1.1, squad/v2.0: 2 epochs,
            batches of 32, 1e-4, warm-up 0.1, weight decay 0, layer decay 0.8. ELECTRA-Large (Clark
            et al. 2020, table 7 (large)): others: 3 epochs, batches of 32, 5e-5, warm-up 0.1,
            weight decay 0, layer decay 0.9; RTE, STS-B: 10 epochs, batches of 32, 5e-5, warm-up
            0.1, weight decay 0, layer decay 0.9; squad/v1.1, squad/v2.0: 2 epochs, batches of 32,
            5e-5, warm-up 0.1, weight decay 0, layer decay 0.9. GPT-1 (Radford et al. 2018, section
            4.1): others: 3 epochs, batches of 32, 6.25e-5, warm-up 0.002. XLNet (Yang et al. 2019,
            table 8): MNLI: 3 epochs, batches of 128, 2e-5; squad/v1.1, squad/v2.0: 3 epochs,
            batches of 48, 3e-5, layer decay 0.75. Models without such a paper: as BERT.
        max_length: tokens of an example; longer ones are cut, and counted; None: 128, spans 384.
            Contexts of spans are not cut, but read in windows.
        split_seed: of task: random seed for holding out validation examples if the data has none;
            None: that of `seed`. Runs of several seeds are compared on the same ones.
        seed: random seed.
        long_seq_length: of lm: tokens in a sequence of a second phase, as in the paper; None: one
            phase. The last `long_share` of the steps have sequences of this length. One schedule
            runs over both.
        long_share: of lm: share of the steps, for the second phase.
        warmup_steps: steps with a rising rate; None: by `warmup_ratio`.
        optimizer: AdamW; LAMB, for large batches; or Muon for the matrices of the layers, with
            AdamW for the rest. See :mod:`bertine.training.optimizers`.
        weight_decay: decay of the weights; none on biases and norms.
        adam_beta1: of AdamW and LAMB: how long the first moment remembers.
        adam_beta2: of AdamW and LAMB: how long the second moment remembers.
        adam_epsilon: of AdamW and LAMB; as in the paper's code.
        bias_correction: of AdamW and LAMB; Google's programs have none.
        max_grad_norm: gradients are scaled down to this global norm; 0 does not clip.
        max_tokens_per_micro_batch: compute each update in parts of at most this many tokens: the
            same result in less memory; None: by the device.
        schedule: how the rate changes after the warm-up; one-cycle: momentum too. See
            :mod:`bertine.training.schedules`.
        layer_decay: the rate of each layer as a share of that of the one above.
        dropout: rate of dropout on hidden states and attention; None: the model's own rates.
        patience: stop when the task's score on the validation examples has not improved for this
            many epochs, and save the model of the best. Unless `save_best` is False.
        precision: number format to compute in; auto is bf16 where it is measured to be clearly
            faster here.
        device: cpu, cuda or cuda:1; None: the GPU if there is one.
        keep_checkpoints: number of checkpoints to keep; older ones are removed, except that of the
            best evaluation.
        log_every: steps between lines of the log. It is ``log.jsonl``.
        tensorboard: write TensorBoard files as well (needs the package tensorboard).
        save_best: save the weights of the epoch with the best score on the validation examples, not
            those of the last one; None: where that score is better than the last epoch's by more
            than chance. This means by more than its standard error on that number of examples, and
            by three examples or more. The score is the first metric by which the task is judged:
            for CoLA, Matthews. The examples have then been used to choose: judge the model on
            others.
        workers: processes that make the coming batches while the model computes; the result is the
            same with any number; None: 0 on a CPU, whose cores training uses itself; on a GPU up to
            four. See :func:`bertine.corpora.loader.default_workers`.
        resume: go on from the last checkpoint in the output folder, exactly as if never stopped.

    Returns:
        For a store a :class:`~bertine.training.pretraining.result.PretrainResult`; for a task a
        :class:`~bertine.training.distillation.teacher_on_task.Distilled`; for a table of vectors a
        :class:`~bertine.training.distillation.static.StaticResult`.

    Raises:
        BertineError: an option of the other kind of data is given; teacher and student do not fit
            together; what ``pretrain`` and ``finetune`` raise.
    """

def embed(
    model: Embedder | Path | str,
    input: Path | str | TableLike,
    output: Path | str,
    *,
    show_progress: bool = True,
    pooling: PoolingName | None = None,
    layer: int | None = None,
    max_length: int | None = None,
    normalize: bool | None = None,
    dimensions: int | None = None,
    prompt: str | None = None,
    text_column: str | None = None,
    format: PlainFormat | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    batch_invariant: bool = False,
    precision: AnswerPrecision = "auto",
    device: str | None = None,
    dtype: VectorType = "fp32",
) -> EmbedReport:
    """Write a vector for every text of a table, in its order, in bounded memory.

    ``.npy``: an array [rows, D], to be opened with ``numpy.load(path, mmap_mode="r")``. Parquet and
    JSON lines: the columns of the input and ``vector``. With the pooling ``tokens`` they have
    ``tokens`` and ``vectors`` instead, and a ``.npy`` has the vectors of all tokens, with the
    beginnings of the texts (rows + 1 numbers) in ``NAME.offsets.npy``. Each file comes with a small
    ``OUTPUT.json`` that has the model's fingerprint and the settings of the vectors
    (:class:`~bertine.inference.embedding.vector_files.VectorMetadata`); ``similar`` checks it.

    Args:
        model: a model directory; vectors of words (:func:`~bertine.word2vec`), where a text has the
            mean of its words' vectors; or a loaded :class:`~bertine.Embedder`, whose own settings
            then apply.
        input: a csv, tsv, JSON lines, Parquet or plain-text file, or ``-`` for stdin; or a table
            in memory, as for `finetune`.
        output: a .npy, .parquet or .jsonl file, written completely or not at all.
        show_progress: on stderr.
        pooling: how the tokens' states are combined into one vector; tokens: each token keeps its
            own; None: as the model directory says, else mean.
        layer: layer whose states are used: 0 is the embeddings, -1 the last layer, -2 the one
            before it; None: the last.
        max_length: pieces of a text, longer ones are cut; None: as the model directory says, else
            all that the model has positions for.
        normalize: scale vectors to length 1; None: as the model directory says, else not.
        dimensions: keep only this many of a vector's first numbers; for static vectors, and models
            that are trained for it ('bertine finetune similarity' with lengths of vectors); None:
            as the model directory says, else all. What is kept has length 1 again where whole
            vectors have.
        prompt: one of the prompts of the model directory, put before every text; '' for none; None:
            its default.
        text_column: the text; None: text, sentence, or the only column.
        format: format of the input; None: detected from the name of the file and its first line.
        quotes: whether " quotes cells; None: in csv; in tsv where only so its rows fit the header.
        strict: refuse invalid UTF-8 and NUL bytes (and, where labels are read, rows without one)
            instead of mending, or leaving out, and counting them.
        batch_invariant: compute each text by itself, so that its answer has the same bits with any
            other texts; slower. In batches the last digits of an answer depend on the others.
            Precision auto is then fp32.
        precision: number format to compute in; auto is bf16 where it is measured to be clearly
            faster here; int8, on CPUs, turns vectors a little.
        device: cpu, cuda or cuda:1; None: the GPU if there is one.
        dtype: number format of the file.

    Raises:
        BertineError: no such model; the table cannot be read; a column is missing; the output is
            another kind of file; numbers that fp16 cannot hold.
    """

def evaluate(
    model: Predictor | Embedder | Path | str,
    data: Path | str | TableLike,
    *,
    show_progress: bool = True,
    label_column: str | None = None,
    word_column: int | None = None,
    tag_column: int | None = None,
    tag_scheme: TagScheme | None = None,
    text_columns: Sequence[str] | str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    cost_matrix: Path | str | None = None,
    coverage: float | None = None,
    precision: AnswerPrecision = "auto",
    device: str | None = None,
    dimensions: int | None = None,
    probability_columns: Sequence[str] | str | None = None,
    format: LabelledFormat | None = None,
    worst: int = 0,
    baselines: bool = False,
) -> EvaluationReport:
    """Score a fine-tuned model on a labelled file, or on the validation (else test) file of a
    folder; or a pre-trained one on a token store of held-out text, an ELMo on raw text, both on
    minimal pairs. A model that was trained on a task of GLUE reads its official dev files (a model
    for MNLI both, and AX's too), one for spans those of SQuAD. A directory of
    sentence-transformers, static vectors or a pre-trained model is scored on pairs of texts: with a
    score by the order of the cosines (Spearman), without one by the results of a search (nDCG@10,
    recall, MRR@10).

    Args:
        model: a model directory, or a loaded one.
        data: the file or folder, or the store; or a table in memory, as for `finetune`. Minimal
            pairs are JSON lines in the format of BLiMP, with ``sentence_good`` and
            ``sentence_bad``, or a folder of such files.
        show_progress: on stderr.
        label_column: the label; None: as in training.
        word_column: number of the column of the words in a column file; None: as in training.
        tag_column: number of the column of the tags; None: as in training.
        tag_scheme: how the tags mark entities (BILOU and BMES are IOBES in other letters); plain:
            they do not; None: detected from the tags.
        text_columns: the text, or the two texts of a pair; None: as in training.
        quotes: whether " quotes cells; None: in csv; in tsv where only so its rows fit the header.
        strict: refuse invalid UTF-8 and NUL bytes (and, where labels are read, rows without one)
            instead of mending, or leaving out, and counting them.
        cost_matrix: of a model that chooses one label of a text: csv with what answers cost, a row
            for each true label (in the first column) and a column for each answer; the label of
            least expected cost is given; None: the most probable label. A column ``(no answer)``
            has the cost of leaving the text open.
        coverage: of a model that chooses one label of a text or one choice: also give the set of
            those that holds the right one with this probability; None: no sets. By split conformal
            prediction, on the validation examples of the fine-tuning
            (:mod:`bertine.tasks.calibration`).
        precision: number format to compute in; auto is the one the model was trained in (bf16 or
            fp32), and fp32 where bf16 is not measured to be clearly faster.
        device: cpu, cuda or cuda:1; None: the GPU if there is one.
        dimensions: for a model that gives vectors: keep only this many of a vector's first numbers;
            None: as the model directory says, else all.
        probability_columns: of a model with one label a text: a column for each of its labels with
            the probability, in place of `label_column`; named as the label, or probability_LABEL;
            None: recognized where the table has no column of labels. The most probable label counts
            as the label of a row; the loss is the cross-entropy with the probabilities.
        format: format of the table; columns are column files of words; None: detected from the name
            of the file and its first lines.
        worst: also list this many examples with the highest loss, with file and line; wrong labels
            are often among them, in a training file only while the model has not learned them by
            heart.
        baselines: also score the task's baselines on these examples, fitted on the training file if
            it is still there and unchanged.

    Returns:
        The scores. If the model was trained on these examples, the first note says so.

    Raises:
        BertineError: no such model or data, a missing column, a label that the model does not
            know; `worst` is below 0; `worst` or `baselines` is given for a token store or for
            minimal pairs.
    """

def explain(
    model: Predictor | Path | str,
    texts: Sequence[TextOrDict] | TextOrDict | None = None,
    *,
    input: Path | str | None = None,
    output: Path | str | None = None,
    method: ExplanationMethod = "leave-one-out",
    label: str | None = None,
    word: str | None = None,
    show_progress: bool = True,
    text_columns: Sequence[str] | str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    nearest_examples: int = 0,
    examples: Path | str | None = None,
    precision: AnswerPrecision = "auto",
    device: str | None = None,
    format: PlainFormat | None = None,
) -> Explanations:
    """Explain how each word of a text contributes to the model's answer.

    Contributions are to the log-odds of the answer, of a regression to the score: above 0 a word
    speaks for the answer, below 0 against it. With ``"leave-one-out"`` a word's is what the score
    loses without the word; with ``"integrated-gradients"`` they add up to the difference between
    the scores of the text and of the text with every word masked, to 0.1 or 5% of it.

    For a tagger the tags of all its entities are explained together (`label`: those of one type),
    for spans the start and end of the answer, for multiple choice the choice against the others. A
    text that is too long for the model is explained as far as the model reads it.

    Args:
        model: a fine-tuned model directory, or a loaded one.
        texts: one text, or several; the texts that belong together are a tuple, a dictionary by
            column, or, where all are strings, every two for a model of pairs. Not with `input`.
        input: a csv, tsv, JSON lines, Parquet or plain-text file, or ``-`` for stdin.
        output: a file for JSON lines, or ``-`` for stdout: the columns of the input and the
            ``explanation``. None: the explanations are returned.
        method: ``"leave-one-out"`` or ``"integrated-gradients"``.
        label: the label to explain in place of the answer; for a tagger the type of the entities.
        word: for a tagger: explain the tag of this word alone, at its first place in the text.
        show_progress: on stderr.
        text_columns: the text, or the two texts of a pair; None: as in training.
        quotes: whether " quotes cells; None: in csv; in tsv where only so its rows fit the header.
        strict: refuse invalid UTF-8 and NUL bytes (and, where labels are read, rows without one)
            instead of mending, or leaving out, and counting them.
        nearest_examples: also show this many labelled examples that are nearest to the text, by the
            vectors that the head reads. The vectors are computed once and kept next to the weights.
        examples: the labelled file to take them from; None: the training file, if it is still there
            and unchanged.
        precision: number format to compute in; auto is the fastest whose outputs a check finds
            close to those in fp32.
        device: cpu, cuda or cuda:1; None: the GPU if there is one.
        format: format of the input; None: detected from the name of the file and its first line.

    Raises:
        BertineError: no such model; neither or both of `texts` and `input`; an unknown method,
            label or word; an item that is not a text; the file cannot be read; an output that is
            not JSON lines.
    """

def export(
    model: Path | str,
    output: Path | str,
    *,
    format: ExportFormat = "onnx",
    int8: bool = False,
    data: Path | str | TableLike | None = None,
    show_progress: bool = True,
    label_column: str | None = None,
    word_column: int | None = None,
    tag_column: int | None = None,
    tag_scheme: TagScheme | None = None,
    text_columns: Sequence[str] | str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    pooling: PoolingName | None = None,
    layer: int | None = None,
    max_length: int | None = None,
    normalize: bool | None = None,
    data_format: LabelledFormat | None = None,
) -> ExportReport:
    """Write a model as a graph that runs without Bertine, with its tokenizer, for batches and texts
    of any size; compare its outputs with those of the model; and score both on `data`.

    The graph of a fine-tuned model gives logits, that of any other model the vectors of texts,
    pooled in the graph. The folder holds ``model.onnx`` (and ``model.int8.onnx``) or ``model.pt2``,
    ``tokenizer.json`` that cuts and pads, ``config.json``, and ``export.json``, which describes
    inputs and outputs.

    Args:
        model: a model directory of any kind.
        output: the folder; an earlier export there is replaced.
        format: ``"onnx"`` (needs onnx, onnxruntime and onnxscript) or ``"torch"``, a program
            of ``torch.export``.
        int8: for ONNX, also write a graph with int8 weights.
        data: labelled examples, a file, folder or table as for :func:`bertine.evaluate`: the
            scores of the model and of each graph on them are in the report and in
            ``export.json``. None: no scores.
        show_progress: show the progress of scoring on stderr.
        label_column: the label; None: as in training.
        word_column: number of the column of the words in a column file; None: as in training.
        tag_column: number of the column of the tags; None: as in training.
        tag_scheme: how the tags mark entities (BILOU and BMES are IOBES in other letters); plain:
            they do not; None: detected from the tags.
        text_columns: the text, or the two texts of a pair; None: as in training.
        quotes: whether " quotes cells; None: in csv; in tsv where only so its rows fit the header.
        strict: refuse invalid UTF-8 and NUL bytes (and, where labels are read, rows without one)
            instead of mending, or leaving out, and counting them.
        pooling: how the tokens' states are combined into one vector; tokens: each token keeps its
            own; None: as the model directory says, else mean.
        layer: layer whose states are used: 0 is the embeddings, -1 the last layer, -2 the one
            before it; None: the last.
        max_length: pieces of a text, longer ones are cut; None: as the model directory says, else
            all that the model has positions for.
        normalize: scale vectors to length 1; None: as the model directory says, else not.
        data_format: format of the table; columns are column files of words; None: detected from the
            name of the file and its first lines.

    Raises:
        BertineError: no such model, an unknown format, int8 with the format of PyTorch, a package
            that is not installed; a maximum length beyond the model's positions or without room for
            text; a folder that holds something else; a graph whose outputs differ from the model's;
            `data` for a graph that gives vectors, or data that cannot be read, or whose labels the
            model does not know; options for `data` without `data`.
    """

def feature_based(
    model: Path | str,
    *,
    data: Path | str,
    out: Path | str,
    text_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    word_column: int | None = None,
    tag_column: int | None = None,
    tag_scheme: TagScheme | None = None,
    document_context: bool = False,
    epochs: int = 10,
    batch_size: int = 32,
    learning_rate: float = 0.001,
    lstm_size: int = 768,
    lstm_layers: int = 2,
    dropout: float = 0.5,
    max_grad_norm: float = 5.0,
    layer_penalty: float | None = None,
    crf: bool = False,
    seed: int = 0,
    precision: Precision = "auto",
    device: str | None = None,
    resume: bool = False,
    task: FeatureTask = "tagging",
    glue_task: str | None = None,
    rows: Sequence[str] | None = None,
    word_vectors: Path | str | None = None,
    format: LabelledFormat | None = None,
    strict: bool = False,
    max_length: int = 128,
    finetune_epochs: int = 3,
    finetune_learning_rate: float = 5e-05,
) -> FeatureBasedReport:
    """Train a BiLSTM on the states of a frozen model.

    It tags words in the ways of BERT's paper (section 5.3, table 7), with fine-tuning for
    comparison; or as in ELMo's, with a mix of the layers; or over vectors of words. Or it does the
    same for texts, with one vector each, the maximum over the words. The table is also written to
    ``out/feature-based.json``, and the answers of each row to ``out/answers``. The taggers and
    classifiers themselves are not kept.

    The states are computed once and kept in ``out/states``, by a hash of everything that they
    depend on.

    Args:
        model: the model directory of an encoder or an ELMo, or vectors of words
            (:func:`~bertine.word2vec`).
        data: as for ``finetune`` of the task; a test file in a folder is scored too.
        out: the folder of the results; the run of fine-tuning is ``out/fine-tuning``.
        text_columns: the text, or the two texts of a pair; None: the usual names. Of multiple
            choice what stands before the choices, the second of two beginning each of them.
        label_column: the label; None: the usual names.
        word_column: number of the column of the words in a column file; None: the first that holds
            no numbers.
        tag_column: number of the column of the tags; None: the last that holds tags.
        tag_scheme: how the tags mark entities (BILOU and BMES are IOBES in other letters); plain:
            they do not; None: detected from the tags.
        document_context: fill the input with the sentences around, of the same document
            (-DOCSTART-). See BERT's paper, section 5.3.
        epochs: passes of the BiLSTM over the training sentences.
        batch_size: sentences in an update, of fine-tuning too.
        learning_rate: highest learning rate of the BiLSTM, with which it begins.
        lstm_size: units of each direction.
        lstm_layers: layers of the BiLSTM.
        dropout: rate of dropout around each layer of the BiLSTM.
        max_grad_norm: the BiLSTM's gradients are scaled down to this norm; 0 does not clip.
        layer_penalty: λ of the squared weights that layers are summed with: the higher, the nearer
            they stay to the mean of the layers; None: 0.1 of an ELMo, as its paper has for
            entities, else 0.
        crf: of tagging: a chain over the tags (CRF), whose answers are valid sequences, as in
            ELMo's paper.
        seed: random seed.
        precision: number format to compute in; auto is bf16 where it is measured to be clearly
            faster here.
        device: cpu, cuda or cuda:1; None: the GPU if there is one.
        resume: keep the rows that the output folder has already. If they were made with the same
            settings.
        task: what is learned: a tag for each word (tagging); for each text or pair a label (text),
            several (multi-label) or a number (regression); or a task of GLUE (glue).
        glue_task: with the task glue: CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE or WNLI.
        rows: of fine-tuning, embeddings, second-to-last, last, sum-last-four, concat-last-four,
            sum-all; mix (all layers, embeddings among them), mix-both (also at the output of the
            BiLSTM), mix-output (there alone, over the words by themselves); of vectors of words
            word-vectors, bag-of-vectors; None: all of an encoder but the mixes; of an ELMo
            embeddings, second-to-last, last, mix and mix-both.
        word_vectors: vectors of words for a row more, in the place of states (of texts also their
            mean, with logistic regression): a folder of word2vec, or a .bin, .txt or .vec file;
            None: no such row.
        format: format of the files; None: detected from the name of the file and its first line.
        strict: refuse invalid UTF-8 and NUL bytes instead of mending and counting them.
        max_length: tokens of an input, or words if the task has texts; the rest is cut.
        finetune_epochs: passes of fine-tuning.
        finetune_learning_rate: learning rate of fine-tuning.

    Raises:
        BertineError: an unknown row; what reading the data or the model raises; an option that the
            model or the task does not take; `out` holds results already, or with `resume` those of
            other settings.
    """

def few_shot(
    *,
    model: Path | str,
    data: Path | str | DatasetSplits | TableLike,
    out: Path | str,
    task: FewShotTask = "text",
    text_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    format: LabelledFormat | None = None,
    class_weights: ClassWeights | None = None,
    label_columns: Sequence[str] | str | None = None,
    label_separator: str | None = None,
    threshold: float = 0.5,
    steps: int | None = None,
    batch_size: int | None = None,
    trained_weights: FewShotWeights | None = None,
    max_length: int | None = None,
    learning_rate: float | None = None,
    calibrate: bool = True,
    baselines: bool = True,
    precision: Precision = "auto",
    device: str | None = None,
    seed: int = 0,
    quiet: bool = False,
    resume: bool = False,
) -> Learner:
    """Train on a few labelled texts: first the encoder, contrastively, then a linear head on its
    vectors.

    The encoder is trained so that texts with the same label have vectors close to each other, by a
    contrastive loss over all pairs of a batch (the idea of SetFit: Tunstall et al. 2022, arXiv
    2209.11055).

    Args:
        model: the model directory to start from; preferably one trained for sentence vectors.
        data: labelled texts, or pairs of texts, as for :func:`bertine.finetune`. If there is no
            validation file, nothing is held out, and the model is not evaluated.
        out: the run's folder; the model directory is ``out/model``.
        task: one label of each text or pair (text), or any number of them (multi-label).
        text_columns: the text, or the two texts of a pair; None: the usual names. Of multiple
            choice what stands before the choices, the second of two beginning each of them.
        label_column: the label; None: the usual names.
        quotes: whether " quotes cells; None: in csv; in tsv where only so its rows fit the header.
        strict: refuse invalid UTF-8 and NUL bytes (and, where labels are read, rows without one)
            instead of mending, or leaving out, and counting them.
        format: format of the table; columns are column files of words; None: detected from the name
            of the file and its first lines.
        class_weights: let every class count the same in the loss, however rare; None: every example
            does. Of many labels, the presence and the absence of each.
        label_columns: a column of 0 and 1 for each label, in place of `label_column`.
        label_separator: between labels in one column; None: | ; or , if it occurs.
        threshold: a label is given from this probability on.
        steps: batches of contrastive training; None: by the number of examples.
        batch_size: texts in a batch; every two of them are a pair to learn from; None: 32.
        trained_weights: weights of the encoder that are trained: its biases and layer norms, or
            all; None: biases with fewer than 256 single texts, if the layers have any; else all.
        max_length: tokens of an example; longer ones are cut, and counted; None: 128, spans 384.
            Contexts of spans are not cut, but read in windows.
        learning_rate: highest learning rate; None: by the trained weights, the width of the model
            and the number of examples.
        calibrate: at the end fit a temperature on the validation examples and divide the head by
            it, so that answers are right as often as their probability says; nothing is fitted with
            fewer than 50 examples, or if answers have no probability. Answers stay the same, their
            probabilities change: in files, the server, exported models and other programs, since
            the weights of the head have it. Guo et al. 2017 (:mod:`bertine.tasks.calibration`).
        baselines: compare the model's score with those of cheap baselines: the most frequent label,
            linear models on tf-idf and on the vectors of the model before training (some seconds).
            On the validation examples; of all of GLUE none.
        precision: number format to compute in; auto is bf16 where it is measured to be clearly
            faster here.
        device: cpu, cuda or cuda:1; None: the GPU if there is one.
        seed: random seed.
        quiet: print no notes and no progress; warnings and errors are printed all the same.
        resume: go on from the last checkpoint in the output folder, exactly as if never stopped.

    Returns:
        What :func:`bertine.finetune` returns.

    Raises:
        BertineError: a label with one example; what ``finetune`` raises.
    """

def finetune(
    task: TaskName,
    *,
    model: Path | str,
    data: Path | str | DatasetSplits | TableLike,
    out: Path | str,
    glue_task: str | None = None,
    text_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    format: LabelledFormat | None = None,
    probability_columns: Sequence[str] | str | None = None,
    label_columns: Sequence[str] | str | None = None,
    label_separator: str | None = None,
    threshold: float = 0.5,
    class_weights: ClassWeights | None = None,
    focal_gamma: float = 0.0,
    long_text: LongText = "head",
    pairs: PairReading = "joined",
    choice_columns: Sequence[str] | str | None = None,
    doc_stride: int | None = None,
    max_question_length: int | None = None,
    max_answer_length: int | None = None,
    word_column: int | None = None,
    tag_column: int | None = None,
    tag_scheme: TagScheme | None = None,
    document_context: bool = False,
    target_column: str | None = None,
    max_target_length: int = 64,
    beams: int = 1,
    length_penalty: float = 1.0,
    no_repeat_ngram_size: int = 0,
    label_smoothing: float = 0.0,
    fresh_weights: bool = False,
    epochs: int | None = None,
    batch_size: int | None = None,
    paper: bool = False,
    max_length: int | None = None,
    split_seed: int | None = None,
    learning_rate: float | None = None,
    warmup_steps: int | None = None,
    warmup_ratio: float | None = None,
    optimizer: OptimizerName = "adamw",
    weight_decay: float = 0.01,
    adam_beta1: float = 0.9,
    adam_beta2: float = 0.999,
    adam_epsilon: float = 1e-06,
    bias_correction: bool = True,
    max_grad_norm: float = 1.0,
    max_tokens_per_micro_batch: int | None = None,
    schedule: ScheduleName = "linear",
    layer_decay: float = 1.0,
    dropout: float | None = None,
    freeze_layers: int = 0,
    frozen: bool | None = None,
    freeze_embeddings: bool = False,
    lm_weight: float | None = None,
    lm_softmax: LmSoftmax = "tokens",
    calibrate: bool = True,
    patience: int | None = None,
    baselines: bool = True,
    precision: Precision = "auto",
    device: str | None = None,
    shard: bool = False,
    seed: int = 0,
    checkpoint_every: int | None = None,
    keep_checkpoints: int = 2,
    log_every: int = 10,
    tensorboard: bool = False,
    save_best: bool | None = None,
    workers: int = 0,
    compile: bool = False,
    quiet: bool = False,
    resume: bool = False,
) -> Learner:
    """Fine-tune all weights on labelled examples (paper, sections 3.2 and A.3).

    Args:
        task: a name of :data:`bertine.tasks.TASKS`, or ``"glue"``, ``"squad"`` or ``"swag"``.
        model: the model directory to start from.
        data: a labelled file, or a folder with a training and a validation file. If there is no
            validation file, a tenth of the training examples is held out. For GLUE the folder with
            its tasks' folders, or one of those, in the layout of gluebenchmark.com. For SQuAD its
            training file, with the dev file in the same folder, or this folder. For SWAG the folder
            of its files, or one of them. Or a table in memory (:mod:`~bertine.data.in_memory`): a
            pandas or polars frame, an Arrow table, a ``datasets.Dataset``, a list of dictionaries,
            a dictionary of columns; a dictionary of such tables has the parts ``train`` and
            ``validation``. Or :class:`~bertine.datasets.readers.DatasetSplits`, which were read
            before; options for reading (columns, format, and the options of tables, spans and tags)
            must then not be given. If they have no validation examples, nothing is evaluated.
        out: the run's folder; the model directory is ``out/model``.
        glue_task: of glue: CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE or WNLI. Or ``"all"``:
            one run after the other, in ``out/CoLA``, ``out/SST-2``, …, for each task that `data`
            has, and the table of scores. With `resume` those that are finished are not run again.
        text_columns: the text, or the two texts of a pair; None: the usual names. Of multiple
            choice what stands before the choices, the second of two beginning each of them.
        label_column: the label; None: the usual names.
        quotes: whether " quotes cells; None: in csv; in tsv where only so its rows fit the header.
        strict: refuse invalid UTF-8 and NUL bytes (and, where labels are read, rows without one)
            instead of mending, or leaving out, and counting them.
        format: format of the table; columns are column files of words; None: detected from the name
            of the file and its first lines.
        probability_columns: of text: a column for each label with its probability, in place of
            `label_column`; named as the label, or probability_LABEL. They are learned from as they
            are (soft labels); the most probable label is the one that scores count.
        label_columns: of multi-label: a column of 0 and 1 for each label, in place of
            `label_column`.
        label_separator: of multi-label: between labels in one column; None: | ; or , if it occurs.
        threshold: of multi-label: a label is given from this probability on.
        class_weights: of text, multi-label: let every class count the same in the loss, however
            rare; None: every example does. Of many labels, the presence and the absence of each.
        focal_gamma: of text, multi-label: focal loss: what is predicted well already counts less,
            the more so the higher it is (0: cross-entropy).
        long_text: of text, multi-label, regression: what is read of a text longer than
            `max_length`; windows: all of it, scores averaged. See :mod:`bertine.tasks.base`.
        pairs: of text, multi-label, regression, glue: read the two texts of a pair as one input, or
            each by itself, to compare their vectors and their words; with few labels, or for how
            alike two texts are, apart is mostly better. The vectors are compared by the head that
            `frozen` fits: it is fitted first, and then trained with all other weights.
        choice_columns: of choice: a column for each choice; None: ending0, choice1, option A, ….
        doc_stride: of spans, squad: tokens from one window of a long context to the next; None:
            128.
        max_question_length: of spans, squad: tokens of a question; longer ones are cut, and
            counted; None: 64.
        max_answer_length: of spans, squad: tokens of the longest answer; None: 30.
        word_column: of tagging: number of the column of the words in a column file; None: the first
            that holds no numbers.
        tag_column: of tagging: number of the column of the tags; None: the last that holds tags.
        tag_scheme: of tagging: how the tags mark entities (BILOU and BMES are IOBES in other
            letters); plain: they do not; None: detected from the tags.
        document_context: of tagging: fill the input with the sentences around, of the same document
            (-DOCSTART-). See BERT's paper, section 5.3.
        target_column: of seq2seq: column of the text to write; None: target, summary, highlights or
            output.
        max_target_length: of seq2seq: tokens of a text to write; longer ones are cut, and counted.
        beams: of seq2seq: sequences that are followed at once when a text is written; one takes the
            least time.
        length_penalty: of seq2seq: with `beams`: above 0 long texts win, the more so the higher it
            is.
        no_repeat_ngram_size: of seq2seq: never write a run of this many tokens twice; 0: no limit.
        label_smoothing: of seq2seq: the share of each target that all words have together in
            training; 0.1 is usual for summaries.
        fresh_weights: take only the architecture and the vocabulary of the model, and begin with
            random weights: what a model reaches without pre-training.
        epochs: passes over the training examples; None: from 3 with many examples to 25 with few;
            more of many classes.
        batch_size: examples in an update; None: 16, or 32 with more than 4,000 examples.
        paper: use the settings of the model's paper wherever you give none, and keep the weights of
            the last epoch. BERT (Devlin et al. 2018, sections 4 and A.3): others: 3 epochs, batches
            of 32, 5e-5, also batches of 16, rates to 2e-5, 2 and 4 epochs; CoLA, SST-2, MRPC,
            STS-B, QQP, MNLI, QNLI, RTE, WNLI: 3 epochs, batches of 32, 5e-5, also rates 4e-5, 3e-5
            and 2e-5; squad/v1.1: 3 epochs, batches of 32, 5e-5; squad/v2.0: 2 epochs, batches of
            48, 5e-5; swag: 3 epochs, batches of 16, 2e-5. RoBERTa (Liu et al. 2019, table 10, and
            fairseq's README.glue.md): others: 10 epochs, batches of 16, 1e-5, warm-up 0.06, weight
            decay 0.1, also 2e-5 and 3e-5, batches of 32; CoLA, MRPC: 10 epochs, batches of 16,
            1e-5, warm-up 0.06, weight decay 0.1; RTE, STS-B: 10 epochs, batches of 16, 2e-5,
            warm-up 0.06, weight decay 0.1; SST-2, MNLI, QNLI: 10 epochs, batches of 32, 1e-5,
            warm-up 0.06, weight decay 0.1; QQP: 10 epochs, batches of 32, 1e-5, warm-up 0.25,
            weight decay 0.1; squad/v1.1, squad/v2.0: 2 epochs, batches of 48, 1.5e-5, warm-up 0.06,
            weight decay 0.01. ALBERT (Lan et al. 2019, table 14): CoLA: 10 epochs, batches of 16,
            1e-5, warm-up 0.06; STS-B: 10 epochs, batches of 16, 2e-5, warm-up 0.0595; SST-2, QNLI:
            10 epochs, batches of 32, 1e-5, warm-up 0.06; MNLI: 3 epochs, batches of 128, 3e-5,
            warm-up 0.1; QQP: 5 epochs, batches of 128, 5e-5, warm-up 0.0714; RTE: 10 epochs,
            batches of 32, 3e-5, warm-up 0.25; MRPC: 7 epochs, batches of 32, 2e-5, warm-up 0.25;
            WNLI: 50 epochs, batches of 16, 2e-5, warm-up 0.125; squad/v1.1: 2 epochs, batches of
            48, 5e-5, warm-up 0.1; squad/v2.0: 3 epochs, batches of 48, 3e-5, warm-up 0.1.
            ELECTRA-Small (Clark et al. 2020, table 7 (small)): others: 3 epochs, batches of 32,
            3e-4, warm-up 0.1, weight decay 0, layer decay 0.8; RTE, STS-B: 10 epochs, batches of
            32, 3e-4, warm-up 0.1, weight decay 0, layer decay 0.8; squad/v1.1, squad/v2.0: 2
            epochs, batches of 32, 3e-4, warm-up 0.1, weight decay 0, layer decay 0.8. ELECTRA-Base
            (Clark et al. 2020, table 7 (base)): others: 3 epochs, batches of 32, 1e-4, warm-up 0.1,
            weight decay 0, layer decay 0.8; RTE, STS-B: 10 epochs, batches of 32, 1e-4, warm-up
            0.1, weight decay 0, layer decay 0.8; squad/v1.1, squad/v2.0: 2 epochs, batches of 32,
            1e-4, warm-up 0.1, weight decay 0, layer decay 0.8. ELECTRA-Large (Clark et al. 2020,
            table 7 (large)): others: 3 epochs, batches of 32, 5e-5, warm-up 0.1, weight decay 0,
            layer decay 0.9; RTE, STS-B: 10 epochs, batches of 32, 5e-5, warm-up 0.1, weight decay
            0, layer decay 0.9; squad/v1.1, squad/v2.0: 2 epochs, batches of 32, 5e-5, warm-up 0.1,
            weight decay 0, layer decay 0.9. GPT-1 (Radford et al. 2018, section 4.1): others: 3
            epochs, batches of 32, 6.25e-5, warm-up 0.002. XLNet (Yang et al. 2019, table 8): MNLI:
            3 epochs, batches of 128, 2e-5; squad/v1.1, squad/v2.0: 3 epochs, batches of 48, 3e-5,
            layer decay 0.75. Models without such a paper: as BERT.
        max_length: tokens of an example; longer ones are cut, and counted; None: 128, spans 384.
            Contexts of spans are not cut, but read in windows.
        split_seed: random seed for holding out validation examples if the data has none; None: that
            of `seed`. Runs of several seeds are compared on the same ones.
        learning_rate: highest learning rate; None: by the width of the model.
        warmup_steps: steps with a rising rate; None: by `warmup_ratio`.
        warmup_ratio: share of the steps with a rising rate, where `warmup_steps` is not given;
            None: 0.1, of one-cycle 0.3.
        optimizer: AdamW; LAMB, for large batches; or Muon for the matrices of the layers, with
            AdamW for the rest. See :mod:`bertine.training.optimizers`.
        weight_decay: decay of the weights; none on biases and norms.
        adam_beta1: of AdamW and LAMB: how long the first moment remembers.
        adam_beta2: of AdamW and LAMB: how long the second moment remembers.
        adam_epsilon: of AdamW and LAMB; as in the paper's code.
        bias_correction: of AdamW and LAMB; Google's programs have none.
        max_grad_norm: gradients are scaled down to this global norm; 0 does not clip.
        max_tokens_per_micro_batch: compute each update in parts of at most this many tokens: the
            same result in less memory; None: by the device.
        schedule: how the rate changes after the warm-up; one-cycle: momentum too. See
            :mod:`bertine.training.schedules`.
        layer_decay: the rate of each layer as a share of that of the one above.
        dropout: rate of dropout on hidden states and attention; None: the model's own rates.
        freeze_layers: number of lowest layers that are not trained.
        frozen: train no layer: fit the head alone, in seconds, on the vectors that the model gives
            already; None: all weights are trained, but the head alone is saved where it is better.
            Of pairs the head is fitted on the vectors of both texts
            (:mod:`bertine.training.finetuning.linear_probe`). It can be better than training all
            weights where there are few labels. What is about training (`epochs`, `learning_rate`
            and the like) is refused with it. None compares on the validation examples
            (:mod:`bertine.training.finetuning.linear_probe`; not without `baselines`, not with
            `paper` or `focal_gamma`, not in several processes). False: the trained model is saved,
            even if the head alone is better.
        freeze_embeddings: do not train the embeddings.
        lm_weight: weight of guessing the next token of the inputs, in addition to the task (the λ
            of GPT-1); 0: none; None: 0.5 for openai-gpt, and nothing for other types, which do not
            guess it.
        lm_softmax: what the next token is compared with: the tokens, or, as in OpenAI's code, the
            positions too.
        calibrate: at the end fit a temperature on the validation examples and divide the head by
            it, so that answers are right as often as their probability says; nothing is fitted with
            fewer than 50 examples, or if answers have no probability. Answers stay the same, their
            probabilities change: in files, the server, exported models and other programs, since
            the weights of the head have it. Guo et al. 2017 (:mod:`bertine.tasks.calibration`).
        patience: stop when the task's score on the validation examples has not improved for this
            many epochs, and save the model of the best. Unless `save_best` is False.
        baselines: compare the model's score with those of cheap baselines: the most frequent label,
            linear models on tf-idf and on the vectors of the model before training (some seconds).
            On the validation examples; of all of GLUE none.
        precision: number format to compute in; auto is bf16 where it is measured to be clearly
            faster here.
        device: cpu, cuda or cuda:1; None: the GPU if there is one.
        shard: under torchrun: divide weights, gradients and moments among the processes (FSDP), in
            place of keeping all in each.
        seed: random seed.
        checkpoint_every: steps between checkpoints; None: one after each epoch. They are removed
            when the model directory has been written.
        keep_checkpoints: number of checkpoints to keep; older ones are removed, except that of the
            best evaluation.
        log_every: steps between lines of the log. It is ``log.jsonl``.
        tensorboard: write TensorBoard files as well (needs the package tensorboard).
        save_best: save the weights of the epoch with the best score on the validation examples, not
            those of the last one; None: where that score is better than the last epoch's by more
            than chance. This means by more than its standard error on that number of examples, and
            by three examples or more. The score is the first metric by which the task is judged:
            for CoLA, Matthews. The examples have then been used to choose: judge the model on
            others.
        workers: processes that make the coming batches while the model computes; the result is the
            same with any number.
        compile: on a GPU, compile the model's parts: it starts slower, to be faster from then on.
            With ``torch.compile``, for runs of many steps; a CPU does without.
        quiet: print no notes and no progress; warnings and errors are printed all the same.
        resume: go on from the last checkpoint in the output folder, exactly as if never stopped.

    Returns:
        The result of the run, with methods to use it: a
        :class:`~bertine.training.finetuning.learner.Learner`.

    Raises:
        BertineError: no such task, model or file; a missing column; a label of the validation file
            that the training file lacks; `out` holds another run; a value is out of range
            (:class:`~bertine.training.fit.FitConfig`).
    """

def finetune_similarity(
    *,
    model: Path | str,
    data: Path | str | TableLike,
    out: Path | str,
    validation: Path | str | TableLike | None = None,
    text_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    negative_columns: Sequence[str] | str | None = None,
    kind: PairKind | None = None,
    format: PlainFormat | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    loss: PairLossName | None = None,
    scale: float = 20.0,
    symmetric: bool = False,
    mine_negatives: int = 0,
    negative_max_ratio: float = 0.95,
    vector_lengths: Sequence[int] | None = None,
    pooling: TrainedPooling | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    max_length: int | None = None,
    learning_rate: float | None = None,
    warmup_steps: int | None = None,
    warmup_ratio: float | None = None,
    optimizer: OptimizerName = "adamw",
    weight_decay: float = 0.01,
    adam_beta1: float = 0.9,
    adam_beta2: float = 0.999,
    adam_epsilon: float = 1e-06,
    bias_correction: bool = True,
    max_grad_norm: float = 1.0,
    max_tokens_per_micro_batch: int | None = None,
    schedule: ScheduleName = "linear",
    layer_decay: float = 1.0,
    dropout: float | None = None,
    patience: int | None = None,
    precision: Precision = "auto",
    device: str | None = None,
    seed: int = 0,
    checkpoint_every: int | None = None,
    keep_checkpoints: int = 2,
    log_every: int = 10,
    tensorboard: bool = False,
    quiet: bool = False,
    resume: bool = False,
    batch_size: int | None = None,
    held_out_pairs: int | None = None,
    evaluate_every: int | None = None,
) -> SimilarityResult:
    """Train a model to give similar texts similar vectors.

    It learns from pairs of a text and its match, with all other texts of a batch and columns of
    negatives as wrong answers (Henderson et al. 2017; Reimers and Gurevych 2019); from pairs with
    scores (CoSENT); from texts with labels, with pairs drawn as they are needed; or from texts
    only, each its own match under another dropout (Gao et al. 2021, SimCSE), or with its
    neighbouring sentences as pairs. Texts are read from disk. The weights of the best evaluation
    are saved, or those before training if none is better.

    Args:
        model: the model directory to start from.
        data: a table, or a folder with a training and a validation file.
        out: the run's folder; the model directory is ``out/model``, one of sentence-transformers.
        validation: a table of pairs, with a score (judged by Spearman) or without (by nDCG@10).
            None: that of the folder, else a tenth of the pairs, at most 2,000, is held out; for
            texts without pairs nothing is held out.
        text_columns: the two texts of a pair, or the one text of a row; None: the usual names.
        label_column: the score of a pair, or the label of a text; None: the usual names.
        negative_columns: texts that do not match the first one of a pair; None: all columns whose
            name begins with negative.
        kind: what the rows are: pairs of a text and its match; pairs with scores; texts with
            labels; texts alone (each is its own match, read under another dropout); or texts whose
            neighbouring sentences are pairs; None: recognized by the columns.
        format: format of the table; None: detected from its name and its first line.
        quotes: whether " quotes cells; None: in csv; in tsv where only so its rows fit the header.
        strict: refuse invalid UTF-8 and NUL bytes (and, where labels are read, rows without one)
            instead of mending, or leaving out, and counting them.
        loss: ranking: a match is nearer than all other texts of the batch; cosent: cosines are in
            the order of the scores; cosine: cosines are the scores; None: cosent for pairs with
            scores, else ranking.
        scale: for ranking and cosent: factor that cosines are multiplied by.
        symmetric: for ranking: the first text of a pair must also be the nearest to its match.
        mine_negatives: for pairs: find this many wrong texts for each that look right, with the
            vectors of the model before training, and train on them too.
        negative_max_ratio: with `mine_negatives`: skip texts whose cosine is above this share of
            the match's, since they may be right.
        vector_lengths: lengths that vectors may be cut to: they are trained so that their first
            numbers can be used alone; None: all numbers. Matryoshka: Kusupati et al. 2022.
        pooling: how the tokens' states are combined into one vector; None: as the model directory
            says, else mean.
        epochs: passes over the rows; None: 4 up to 10,000 rows, else 1.
        steps: updates of the weights, in place of `epochs`; None: as many as the epochs have.
        max_length: tokens of a text; longer ones are cut, and counted; None: as the model directory
            says, at most 128.
        learning_rate: highest learning rate; None: by the width of the model.
        warmup_steps: steps with a rising rate; None: by `warmup_ratio`.
        warmup_ratio: share of the steps with a rising rate, where `warmup_steps` is not given;
            None: 0.1, of one-cycle 0.3.
        optimizer: AdamW; LAMB, for large batches; or Muon for the matrices of the layers, with
            AdamW for the rest. See :mod:`bertine.training.optimizers`.
        weight_decay: decay of the weights; none on biases and norms.
        adam_beta1: of AdamW and LAMB: how long the first moment remembers.
        adam_beta2: of AdamW and LAMB: how long the second moment remembers.
        adam_epsilon: of AdamW and LAMB; as in the paper's code.
        bias_correction: of AdamW and LAMB; Google's programs have none.
        max_grad_norm: gradients are scaled down to this global norm; 0 does not clip.
        max_tokens_per_micro_batch: compute each update in parts of at most this many tokens: the
            same result in less memory; None: by the device.
        schedule: how the rate changes after the warm-up; one-cycle: momentum too. See
            :mod:`bertine.training.schedules`.
        layer_decay: the rate of each layer as a share of that of the one above.
        dropout: rate of dropout on hidden states and attention; None: the model's own rates.
        patience: stop when the score on the validation rows has not improved for this many
            evaluations.
        precision: number format to compute in; auto is bf16 where it is measured to be clearly
            faster here.
        device: cpu, cuda or cuda:1; None: the GPU if there is one.
        seed: random seed.
        checkpoint_every: steps between checkpoints; None: one after each epoch. They are removed
            when the model directory has been written.
        keep_checkpoints: number of checkpoints to keep; older ones are removed, except that of the
            best evaluation.
        log_every: steps between lines of the log. It is ``log.jsonl``.
        tensorboard: write TensorBoard files as well (needs the package tensorboard).
        quiet: print no notes and no progress; warnings and errors are printed all the same.
        resume: go on from the last checkpoint in the output folder, exactly as if never stopped.
        batch_size: pairs of an update; with ranking all its texts are compared with one another, so
            more are harder; None: 64, with scores 32.
        held_out_pairs: pairs that are held out to judge by, with all others that have a text in
            common with them, where no validation file is given; 0: none; None: a tenth, at most
            2,000.
        evaluate_every: steps between evaluations; None: an epoch, at most 1,000.

    Raises:
        BertineError: no such model or data, a column that is missing or not recognized; `out` holds
            another run; a loss that needs scores, and there are none.
    """

def generate(
    model: LoadedModel | Path | str,
    texts: Sequence[str] | str | None = None,
    *,
    input: Path | str | TableLike | None = None,
    output: Path | str | None = None,
    on_text: OnText | None = None,
    show_progress: bool = True,
    max_new_tokens: int = 40,
    min_new_tokens: int = 0,
    sample: bool = False,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    seed: int = 0,
    beams: int = 1,
    length_penalty: float = 1.0,
    early_stopping: bool = False,
    no_repeat_ngram_size: int = 0,
    sequences: int = 1,
    text_column: str | None = None,
    format: PlainFormat | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    device: str | None = None,
    end_token: str | None = None,
) -> GeneratedTexts:
    """Generate the continuation of, or the answer to, one text or many.

    GPT-1 continues the text, BART reads it and writes another. Each token is the most probable one,
    unless tokens are drawn (`sample`) or several sequences are followed at once (`beams`). The same
    arguments give the same text: a draw is a function of the seed, the number of the prompt and the
    place, independent of other prompts.

    Args:
        model: a model directory, or a model that was loaded from one.
        texts: one prompt, or several. Not with `input`.
        input: prompts as a csv, tsv, JSON lines, Parquet or plain-text file, or ``-`` for stdin;
            or a table in memory, as for `finetune`.
        output: a file, or ``-`` for stdout: the columns of the input with ``generated`` added (with
            several `sequences` ``generated_1``, ``generated_2``, …), in the format of the input, or
            that of its suffix (.csv, .jsonl, .parquet); for plain text a line for each text, the
            prompt before its continuation. None: the texts are returned.
        on_text: called with the parts of the texts as soon as they are final, each prompt before
            its continuation and a line break after each text; with beams or several sequences a
            text is final when it has ended. Not with `output`.
        show_progress: on stderr, with a file.
        max_new_tokens: tokens to write at most.
        min_new_tokens: tokens to write before an end token may end the text.
        sample: draw tokens by their probabilities in place of taking the most probable one.
        temperature: with `sample`: divides the scores before the softmax; below 1 probable tokens
            become more probable, and at 0 the most probable one is taken.
        top_k: with `sample`: draw only from this many most probable tokens; None: all.
        top_p: with `sample`: draw among the fewest most probable tokens that have this probability
            together.
        seed: with `sample`: random seed of the draws; each text has its own.
        beams: sequences that are followed at once; the most probable ones are kept.
        length_penalty: with `beams`: sequences are compared by their log-probability divided by
            their length to this power; above 0 long ones win, below 0 short ones.
        early_stopping: with `beams`: stop as soon as that many sequences have ended, even if an
            unfinished one might still be better.
        no_repeat_ngram_size: never write a run of this many tokens twice, counting those of a
            prompt that is continued; 0: no limit.
        sequences: texts for each prompt: the best of the beams, or as many draws.
        text_column: the text; None: text, sentence, or the only column.
        format: format of the input; None: detected from the name of the file and its first line.
        quotes: whether " quotes cells; None: in csv; in tsv where only so its rows fit the header.
        strict: refuse invalid UTF-8 and NUL bytes (and, where labels are read, rows without one)
            instead of mending, or leaving out, and counting them.
        device: cpu, cuda or cuda:1; None: the GPU if there is one.
        end_token: a token of the vocabulary that ends a text, besides the model's own end; None:
            what stood behind documents in pre-training, or the end of a BART's texts.

    Raises:
        BertineError: no such model, or one that generates no texts; neither or both of `texts` and
            `input`; a prompt without any token; options that exclude each other; a file that cannot
            be read; an output in which the texts cannot be written.
    """

def index_vectors(
    vectors: Path | str,
    *,
    out: Path | str,
    show_progress: bool = True,
    recall: float = 0.95,
    seed: int = 0,
) -> IndexReport:
    """Make an index of a file of vectors, with which :func:`~bertine.similar` searches among
    millions without reading all of them. Needs the package faiss-cpu.

    The index has a byte for each number. The vectors' file is still needed: the best candidates are
    compared with it, so scores are exact, and only rows can be missed.

    Args:
        vectors: a ``.npy`` as :func:`~bertine.embed` writes it.
        out: the folder of the index, written completely or not at all.
        show_progress: on stderr.
        recall: share of the ten nearest rows that a search is to find; higher is slower.
        seed: random seed of the rows that the index is built and measured with.

    Raises:
        BertineError: `vectors` is not a ``.npy`` of vectors, or has fewer than 10,000, or a NaN or
            infinite number; `out` holds something else; faiss is missing.
    """

def inspect(
    path: Path | str,
    *,
    max_seq_length: int = 128,
    input_format: InputFormat = "segment-pair",
    whole_word_mask: bool = False,
    ngrams: int = 1,
    masking: Masking = "dynamic",
    num_instances: int = 3,
    seed: int = 0,
    html: Path | str | None = None,
) -> Inspection:
    """Describe the token store or the model directory `path`.

    Args:
        path: a folder that ``prepare`` wrote, or a model directory.
        max_seq_length: tokens of a sequence with its special tokens, at the most.
        input_format: what a sequence is made of; full and doc sentences need objective mlm, rtd,
            clm, denoising or plm, running text needs clm, neighbours mlm-neighbours or mlm. One of
            segment-pair, sentence-pair, full-sentences, doc-sentences, sentence-order, neighbours
            and running-text (:mod:`bertine.corpora.formats`).
        whole_word_mask: choose whole words for prediction.
        ngrams: choose runs of up to this many tokens, or whole words, shorter ones more often;
            ALBERT's paper has 3. A run of n comes with a probability proportional to 1/n
            (:mod:`bertine.corpora.collators`).
        masking: how the tokens to predict are chosen: anew at every step, or (static) in the same
            `dupe_factor` ways again and again. See
            :class:`~bertine.corpora.pretraining_data.PretrainingData`.
        num_instances: instances to show.
        seed: random seed of the instances. The same as in ``pretrain`` shows its first ones.
        html: write the same to a page for the browser.

    Raises:
        BertineError: `path` is neither a store nor a model directory, or is damaged; `html` is
            given for a model.
    """

def learning_curve(
    *,
    model: Path | str,
    data: Path | str | TableLike,
    out: Path | str,
    methods: Sequence[str] | str | None = None,
    repeats: int = 3,
    min_labels: int = 8,
    max_labels: int | None = None,
    growth_factor: float = 2.0,
    test_share: float = 0.2,
    most_tested: int = 2000,
    task: FewShotTask = "text",
    text_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    format: LabelledFormat | None = None,
    class_weights: ClassWeights | None = None,
    label_columns: Sequence[str] | str | None = None,
    label_separator: str | None = None,
    threshold: float = 0.5,
    max_length: int | None = None,
    precision: Precision = "auto",
    device: str | None = None,
    seed: int = 0,
    resume: bool = False,
) -> LearningCurve:
    """Measure the scores from few labels to all, in four ways with several draws each: tf-idf with
    logistic regression, the model's vectors with logistic regression, ``few_shot``, ``finetune``.

    Args:
        model: the model directory to start from.
        data: labelled texts, or pairs of texts, as for :func:`bertine.finetune`.
        out: the folder of the curve: ``learning-curve.json``, and ``learning-curve.html`` with the
            plot. Each cell is written as soon as it is trained and evaluated, so that a curve that
            was stopped can be resumed.
        methods: tf-idf, or the vectors of the model as it is (frozen), with logistic regression;
            few-shot; finetune; None: all four.
        repeats: draws of each number of labels.
        min_labels: labels of each class in the smallest draw.
        max_labels: labels in all in the largest draw; None: all that there are.
        growth_factor: times as many labels from one number to the next.
        test_share: share of the examples to judge on, where there is no validation file.
        most_tested: examples to judge on, at most.
        task: one label of each text or pair (text), or any number of them (multi-label).
        text_columns: the text, or the two texts of a pair; None: the usual names. Of multiple
            choice what stands before the choices, the second of two beginning each of them.
        label_column: the label; None: the usual names.
        quotes: whether " quotes cells; None: in csv; in tsv where only so its rows fit the header.
        strict: refuse invalid UTF-8 and NUL bytes (and, where labels are read, rows without one)
            instead of mending, or leaving out, and counting them.
        format: format of the table; columns are column files of words; None: detected from the name
            of the file and its first lines.
        class_weights: let every class count the same in the loss, however rare; None: every example
            does. Of many labels, the presence and the absence of each.
        label_columns: a column of 0 and 1 for each label, in place of `label_column`.
        label_separator: between labels in one column; None: | ; or , if it occurs.
        threshold: a label is given from this probability on.
        max_length: tokens of an example; longer ones are cut, and counted; None: 128, spans 384.
            Contexts of spans are not cut, but read in windows.
        precision: number format to compute in; auto is bf16 where it is measured to be clearly
            faster here.
        device: cpu, cuda or cuda:1; None: the GPU if there is one.
        seed: random seed.
        resume: go on with the curve in the output folder; what is trained and judged is not trained
            again.

    Returns:
        The curve, with the recommended method and the expected gain of twice as many labels.

    Raises:
        BertineError: what reading the data raises; too few labels for one point; a model that
            cannot be trained; `out` holds something else, a curve that is not to be resumed, or one
            with other settings.
    """

def lr_find(
    task: TaskName,
    *,
    model: Path | str,
    data: Path | str | DatasetSplits | TableLike,
    out: Path | str,
    min_rate: float = 1e-07,
    max_rate: float = 0.01,
    steps: int = 100,
    warmup_steps: int = 10,
    glue_task: str | None = None,
    text_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    format: LabelledFormat | None = None,
    probability_columns: Sequence[str] | str | None = None,
    label_columns: Sequence[str] | str | None = None,
    label_separator: str | None = None,
    class_weights: ClassWeights | None = None,
    focal_gamma: float = 0.0,
    long_text: LongText = "head",
    choice_columns: Sequence[str] | str | None = None,
    doc_stride: int | None = None,
    max_question_length: int | None = None,
    word_column: int | None = None,
    tag_column: int | None = None,
    tag_scheme: TagScheme | None = None,
    document_context: bool = False,
    target_column: str | None = None,
    max_target_length: int = 64,
    label_smoothing: float = 0.0,
    fresh_weights: bool = False,
    batch_size: int | None = None,
    max_length: int | None = None,
    split_seed: int | None = None,
    optimizer: OptimizerName = "adamw",
    weight_decay: float = 0.01,
    adam_beta1: float = 0.9,
    adam_beta2: float = 0.999,
    adam_epsilon: float = 1e-06,
    bias_correction: bool = True,
    max_grad_norm: float = 1.0,
    max_tokens_per_micro_batch: int | None = None,
    layer_decay: float = 1.0,
    dropout: float | None = None,
    freeze_layers: int = 0,
    freeze_embeddings: bool = False,
    lm_weight: float | None = None,
    lm_softmax: LmSoftmax = "tokens",
    precision: Precision = "auto",
    device: str | None = None,
    seed: int = 0,
) -> LrFindReport:
    """Try rising learning rates on labelled examples, and advise one for fine-tuning.

    The training examples are repeated as often as the steps need. The test ends early if the loss
    diverges: if the loss or its gradient is not finite, or if the smoothed loss is more than four
    times the lowest.

    Args:
        out: the folder of the curve (``lr-find.json``), its plot (``.svg``) and its page
            (``.html``); earlier ones are replaced.
        min_rate: rate of the first step.
        max_rate: rate of the last step. Reached exponentially.
        steps: steps with a rising rate.
        warmup_steps: steps before them at the lowest rate, in which Adam's moments fill.
        task, model, data: as for :func:`~bertine.finetune`.
        glue_task: of glue: CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE or WNLI. Or ``"all"``:
            one run after the other, in ``out/CoLA``, ``out/SST-2``, …, for each task that `data`
            has, and the table of scores. With `resume` those that are finished are not run again.
        text_columns: the text, or the two texts of a pair; None: the usual names. Of multiple
            choice what stands before the choices, the second of two beginning each of them.
        label_column: the label; None: the usual names.
        quotes: whether " quotes cells; None: in csv; in tsv where only so its rows fit the header.
        strict: refuse invalid UTF-8 and NUL bytes (and, where labels are read, rows without one)
            instead of mending, or leaving out, and counting them.
        format: format of the table; columns are column files of words; None: detected from the name
            of the file and its first lines.
        probability_columns: of text: a column for each label with its probability, in place of
            `label_column`; named as the label, or probability_LABEL. They are learned from as they
            are (soft labels); the most probable label is the one that scores count.
        label_columns: of multi-label: a column of 0 and 1 for each label, in place of
            `label_column`.
        label_separator: of multi-label: between labels in one column; None: | ; or , if it occurs.
        class_weights: of text, multi-label: let every class count the same in the loss, however
            rare; None: every example does. Of many labels, the presence and the absence of each.
        focal_gamma: of text, multi-label: focal loss: what is predicted well already counts less,
            the more so the higher it is (0: cross-entropy).
        long_text: of text, multi-label, regression: what is read of a text longer than
            `max_length`; windows: all of it, scores averaged. See :mod:`bertine.tasks.base`.
        choice_columns: of choice: a column for each choice; None: ending0, choice1, option A, ….
        doc_stride: of spans, squad: tokens from one window of a long context to the next; None:
            128.
        max_question_length: of spans, squad: tokens of a question; longer ones are cut, and
            counted; None: 64.
        word_column: of tagging: number of the column of the words in a column file; None: the first
            that holds no numbers.
        tag_column: of tagging: number of the column of the tags; None: the last that holds tags.
        tag_scheme: of tagging: how the tags mark entities (BILOU and BMES are IOBES in other
            letters); plain: they do not; None: detected from the tags.
        document_context: of tagging: fill the input with the sentences around, of the same document
            (-DOCSTART-). See BERT's paper, section 5.3.
        target_column: of seq2seq: column of the text to write; None: target, summary, highlights or
            output.
        max_target_length: of seq2seq: tokens of a text to write; longer ones are cut, and counted.
        label_smoothing: of seq2seq: the share of each target that all words have together in
            training; 0.1 is usual for summaries.
        fresh_weights: take only the architecture and the vocabulary of the model, and begin with
            random weights: what a model reaches without pre-training.
        batch_size: examples in an update; None: 16, or 32 with more than 4,000 examples.
        max_length: tokens of an example; longer ones are cut, and counted; None: 128, spans 384.
            Contexts of spans are not cut, but read in windows.
        split_seed: random seed for holding out validation examples if the data has none; None: that
            of `seed`. Runs of several seeds are compared on the same ones.
        optimizer: AdamW; LAMB, for large batches; or Muon for the matrices of the layers, with
            AdamW for the rest. See :mod:`bertine.training.optimizers`.
        weight_decay: decay of the weights; none on biases and norms.
        adam_beta1: of AdamW and LAMB: how long the first moment remembers.
        adam_beta2: of AdamW and LAMB: how long the second moment remembers.
        adam_epsilon: of AdamW and LAMB; as in the paper's code.
        bias_correction: of AdamW and LAMB; Google's programs have none.
        max_grad_norm: gradients are scaled down to this global norm; 0 does not clip.
        max_tokens_per_micro_batch: compute each update in parts of at most this many tokens: the
            same result in less memory; None: by the device.
        layer_decay: the rate of each layer as a share of that of the one above.
        dropout: rate of dropout on hidden states and attention; None: the model's own rates.
        freeze_layers: number of lowest layers that are not trained.
        freeze_embeddings: do not train the embeddings.
        lm_weight: weight of guessing the next token of the inputs, in addition to the task (the λ
            of GPT-1); 0: none; None: 0.5 for openai-gpt, and nothing for other types, which do not
            guess it.
        lm_softmax: what the next token is compared with: the tokens, or, as in OpenAI's code, the
            positions too.
        precision: number format to compute in; auto is bf16 where it is measured to be clearly
            faster here.
        device: cpu, cuda or cuda:1; None: the GPU if there is one.
        seed: random seed.

    Raises:
        BertineError: the rates do not rise, or there are too few steps; for GLUE, no single task is
            named; this is one of several processes; what `finetune` raises for model and data.
    """

def paper(
    name: str,
    *,
    out: Path | str,
    corpus: Path | str | Sequence[Path | str] | None = None,
    data: Path | str | None = None,
    model: str = "bert-mini",
    vocab_size: int = 8192,
    hours: float | None = None,
    steps: int | None = None,
    tokens: int | None = None,
    max_seq_length: int | None = None,
    seeds: int = 3,
    epochs: int | None = None,
    weights: Sequence[Path | str] | None = None,
    paper_grid: bool = False,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    rerun: Sequence[str] | None = None,
    held_out: Path | str | None = None,
    processes: int = 1,
    ray: str | None = None,
    resume: bool = False,
) -> PaperResult:
    """Run a table of a paper, and compare the scores with the published ones.

    The text is prepared, each row is pre-trained for the same time, and fine-tuned on each column's
    task with several seeds.

    Args:
        name: of the table, such as ``"bert-5"``.
        out: the folder of the table. The result is ``out/paper.json``, and as a page
            ``out/paper.html``.
        corpus: texts, as for ``prepare``, of which some documents are held out; or one token store.
            None: for a table of given weights.
        data: a folder with the labelled data of the columns: ``glue/`` with a folder for each task,
            ``squad/``, ``swag/``, ``ner/``, ``sib200/``, ``ocnli/``. Columns without data are left
            out, with a note. None: only columns that need none are run.
        model: preset, or configuration file, whose sizes replace those of the paper's base model;
            for ELMo's tables elmo-tiny, elmo-mini, ….
        vocab_size: pieces of the vocabulary that is trained.
        hours: hours of pre-training for each row, instead of tokens; None: tokens decide.
        steps: steps of pre-training for each row, instead of tokens; None: tokens decide.
        tokens: tokens of pre-training for each row; None: 30 million.
        max_seq_length: tokens of a sequence of pre-training; a batch always has 2,048 tokens; None:
            128; short runs learn more with 64.
        seeds: runs of fine-tuning for each row and column.
        epochs: passes of fine-tuning, and of what is trained on frozen states; None: as finetune
            and feature-based by themselves.
        weights: model directories, each a row of the table; None: none; other tables pre-train
            their rows.
        paper_grid: for every cell search as the paper does: batches of 16 and 32, four rates, 2 to
            4 epochs, as many restarts as there are seeds; the scores are those of the best setting.
        rows: names of the rows to run, instead of all; None: all.
        columns: names of the columns to run, instead of all; None: all whose data are there.
        rerun: rows, or cells as ROW/COLUMN, to run anew although they are done; None: what is done
            stays.
        held_out: token store of other text, where the corpus is a token store too; None: documents
            of the corpus.
        processes: steps at a time, in processes that share the cores.
        ray: let a Ray cluster do the steps (not followed by an address: auto), or 'local'; needs
            the package ray, and all folders where all its machines see them.
        resume: go on with the table in the output folder; what is done is not done again.

    Returns:
        The scores. A step that failed is named in ``failed``; the others are done nevertheless.

    Raises:
        BertineError: there is no such table, row or column; no column can be run; `out` holds
            something else, or a table that is not to be resumed, or of other settings.
    """

def predict(
    model: Predictor | Path | str,
    input: Path | str | TableLike | None = None,
    output: Path | str = "-",
    *,
    texts: Sequence[TextOrDict] | TextOrDict | None = None,
    question: str | None = None,
    context: str | None = None,
    all_probabilities: bool = False,
    show_progress: bool = True,
    format: TextFormat | None = None,
    resume: bool = False,
    text_columns: Sequence[str] | str | None = None,
    quotes: bool | None = None,
    explain: bool = False,
    nearest_examples: int = 0,
    examples: Path | str | None = None,
    word_column: int | None = None,
    strict: bool = False,
    abstain_below: float | None = None,
    cost_matrix: Path | str | None = None,
    coverage: float | None = None,
    batch_invariant: bool = False,
    precision: AnswerPrecision = "auto",
    device: str | None = None,
) -> PredictReport | SquadPredictReport | TagReport | GivenTextsReport | TableLike:
    """Predict every row of a table, in its order and its format, in bounded memory; or a few
    `texts`, whose answers a terminal shows in readable lines.

    The output is the input with the task's columns (``label``, ``probability``) added; a name that
    the input has already gets ``predicted_`` before it. Plain text becomes lines of label, tab,
    probability, tab, text. For Parquet the answers are JSON lines; an output named ``.jsonl`` or
    ``.parquet`` has that format for any input, and one named ``.csv`` where the input is tsv or
    plain text. For spans, a file in SQuAD's format becomes the official object of answers by id;
    see :func:`~bertine.inference.predict.predict_squad`. The output of a tagger is described at
    :func:`~bertine.inference.predict_files.tag_file`. For a table in memory without an output the
    answered rows are returned.

    Args:
        model: a fine-tuned model directory, or a loaded one.
        input: a csv, tsv, JSON lines, Parquet or plain-text file, or ``-`` for stdin; or a table
            in memory, as for `finetune`.
        output: a file, written completely or not at all; or ``-`` for stdout, or for a table in
            memory to return the rows.
        texts: texts to answer in place of a file: one or several. For a model of pairs two strings
            are one example, for multiple choice all of them: the given text, then the choices.
        question, context: for spans, in place of a file: one question about one text.
        all_probabilities: also add ``probability_<label>`` for each label; for spans ``n_best``.
        show_progress: on stderr, unless the answers go to stdout and show it themselves.
        format: format of the table; columns are column files of words; None: detected from the name
            of the file and its first lines.
        resume: of tables of texts: go on where an earlier process was stopped. With the same
            answers as without a stop (:mod:`~bertine.inference.answer_files`). From a file to a
            file.
        text_columns: the text, or the two texts of a pair; None: as in training.
        quotes: of tables of texts: whether " quotes cells; None: in csv; in tsv where only so its
            rows fit the header.
        explain: say what each word contributes to the answer, by leaving words out, as 'bertine
            explain' does. Below the answer in a terminal, as ``explanation`` in JSON lines. The
            same with `nearest_examples`.
        nearest_examples: also show this many labelled examples that are nearest to the text, by the
            vectors that the head reads. The vectors are computed once and kept next to the weights.
        examples: the labelled file to take them from; None: the training file, if it is still there
            and unchanged.
        word_column: of files of words: number of the column of the words in a column file; None: as
            in training.
        strict: refuse invalid UTF-8 and NUL bytes (and, where labels are read, rows without one)
            instead of mending, or leaving out, and counting them.
        abstain_below: of a model that chooses one label, choice or span: leave the answer open
            where its probability is lower, and count how often; of a tagger: leave out such
            entities; None: every text is answered.
        cost_matrix: of a model that chooses one label of a text: csv with what answers cost, a row
            for each true label (in the first column) and a column for each answer; the label of
            least expected cost is given; None: the most probable label. A column ``(no answer)``
            has the cost of leaving the text open.
        coverage: of a model that chooses one label of a text or one choice: also give the set of
            those that holds the right one with this probability; None: no sets. By split conformal
            prediction, on the validation examples of the fine-tuning
            (:mod:`bertine.tasks.calibration`).
        batch_invariant: compute each text by itself, so that its answer has the same bits with any
            other texts; slower. In batches the last digits of an answer depend on the others.
            Precision auto is then fp32.
        precision: number format to compute in; auto is the fastest whose outputs a check finds
            close to those in fp32.
        device: cpu, cuda or cuda:1; None: the GPU if there is one.

    Returns:
        The counts of the written rows. For a table in memory without an output the rows with their
        answers: for a pandas frame the frame with columns added, its index kept; for other tables a
        list of dictionaries.

    Raises:
        BertineError: no such model; neither a file nor texts, or both; the table cannot be read; a
            column is missing; an option does not apply to the task or the file; the output has the
            suffix of a format in which the rows cannot be written; there is nothing to resume, or
            the rows left belong to another input, model or setting.
    """

def prepare(
    corpus: Sequence[Path | str] | Path | str,
    *,
    tokenizer: Path | str,
    out: Path | str,
    shard_tokens: int = 268435456,
    part_bytes: int = 67108864,
    language: str = "en",
    segmenter: SegmenterName | None = None,
    drop_duplicates: bool = False,
    near_duplicates: NearDuplicates = "ignore",
    similarity: float = 0.8,
    processes: int | None = None,
    ray: str | None = None,
    document_per_file: bool = False,
    text_column: str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
) -> PrepareReport:
    """Turn a corpus into a token store (see :mod:`bertine.corpora.store`).

    The same corpus and tokenizer give the same store, bit for bit, with any number of processes or
    machines. Documents are in the order of the input files.

    Each input file (or several small ones together) makes its shards separately. A preparation
    that was killed and is run again with the same arguments keeps the finished files; they
    are in ``.NAME.unfinished`` next to `out`, which may be deleted. A file with another path, size
    or modification time, or with other arguments, is processed again.

    Memory does not grow with the corpus except for small counts: each process holds some batches of
    about a million characters, the largest document
    (:class:`bertine.tokenization.documents.Corpus`), and 8 bytes for each document of its part;
    this one 10 bytes for each document of the corpus, some hundred for each input file, and about
    45 a document during the search for near-duplicates.

    Args:
        corpus: files and folders (see :class:`bertine.tokenization.documents.Corpus`).
        tokenizer: a tokenizer folder or ``vocab.txt``; it is copied into the store.
        out: the store's folder; an existing store is replaced when the new one is complete.
        shard_tokens: most tokens of a shard file (a record batch more is possible).
        part_bytes: input files are combined into parts up to this size.
        language: language of the text, for splitting sentences: en, de, zh, ... (another one: the
            nearest). See :func:`bertine.tokenization.sentences.check_language`.
        segmenter: find the words of Chinese text with jieba, so that masks of whole words hide all
            of a word's characters (needs the package jieba); None: each character is a word. See
            :mod:`bertine.tokenization.sentences`; jieba is in the extra ``zh``.
        drop_duplicates: leave out documents with the same words as an earlier one (they are counted
            anyway).
        near_duplicates: documents nearly the same as an earlier one (count and drop need the
            package rensa). It takes 1 kB of disk a document (:mod:`bertine.corpora.duplicates`).
        similarity: least similarity of near-duplicates: common 5-grams of tokens, as a share of all
            of both.
        processes: processes that work at a time; the store is the same with any number; None: one
            for each core. No more than there are parts.
        ray: let a Ray cluster do it (auto, HOST:PORT), or 'local'; needs the package ray, and
            corpus and store where all its machines see them under the same paths.
        document_per_file: take each plain-text file as one document, blank lines and all.
        text_column: column or key of the text in csv, tsv, Parquet and JSON lines; None: text,
            sentence, or the only column.
        quotes: whether " quotes the cells of csv and tsv; None: in csv, but not in tsv.
        strict: refuse invalid UTF-8 and NUL bytes instead of replacing and counting them.

    Raises:
        BertineError: the corpus cannot be read or has no text, the tokenizer cannot be loaded,
            there are no rules for the language, `out` is a folder of something else or is in use by
            another preparation, the disk is full, an option has an invalid value, or a library
            for it is not installed.
    """

def pretrain(
    store: Path | str,
    *,
    model: Path | str,
    out: Path | str,
    steps: int | None = None,
    tokens: int | None = None,
    hours: float | None = None,
    objective: ObjectiveName | None = None,
    initialization: Initialization = "normal",
    initializer_range: float | None = None,
    held_out: Path | str | None = None,
    evaluate_every: int | None = None,
    neighbours_weight: float = 0.5,
    similarity_temperature: float = 0.05,
    generator: Path | str | None = None,
    generator_size: float = 0.25,
    generator_layers: float = 1.0,
    generator_weight: float = 1.0,
    discriminator_weight: float = 50.0,
    sampling_temperature: float = 1.0,
    save_generator: bool = False,
    infill_share: float = 0.3,
    infill_length: float = 3.0,
    permute_share: float = 1.0,
    mask_share: float = 0.0,
    delete_share: float = 0.0,
    rotate_share: float = 0.0,
    predict_ratio: float = 0.16666666666666666,
    longest_span: int = 5,
    span_context: int = 6,
    permuted_length: int | None = None,
    both_directions: bool = False,
    memory_length: int = 0,
    batch_size: int = 32,
    masked_lm_prob: float = 0.15,
    max_predictions_per_seq: int | None = None,
    mask_split: Sequence[float] | None = None,
    short_seq_prob: float = 0.1,
    dupe_factor: int = 10,
    max_seq_length: int = 128,
    input_format: InputFormat | None = None,
    whole_word_mask: bool = False,
    ngrams: int = 1,
    masking: Masking = "dynamic",
    seed: int = 0,
    long_seq_length: int | None = None,
    long_share: float = 0.1,
    learning_rate: float | None = None,
    warmup_steps: int | None = None,
    warmup_ratio: float = 0.01,
    optimizer: OptimizerName = "adamw",
    weight_decay: float = 0.01,
    adam_beta1: float = 0.9,
    adam_beta2: float = 0.999,
    adam_epsilon: float = 1e-06,
    bias_correction: bool = True,
    max_grad_norm: float = 1.0,
    max_tokens_per_micro_batch: int | None = None,
    schedule: ScheduleName = "linear",
    layer_decay: float = 1.0,
    dropout: float | None = None,
    patience: int | None = None,
    precision: Precision = "auto",
    device: str | None = None,
    shard: bool = False,
    checkpoint_every: int | None = 1000,
    keep_checkpoints: int = 2,
    log_every: int = 10,
    tensorboard: bool = False,
    workers: int | None = None,
    compile: bool = True,
    quiet: bool = False,
    resume: bool = False,
    save_best: bool = False,
) -> PretrainResult:
    """Pre-train with masked LM and next-sentence prediction (paper, section 3.1 and appendix A),
    with masked LM alone, or by detecting tokens that a generator has replaced; the default is the
    recipe of the model's paper.

    Args:
        store: the output of ``prepare``, which contains its tokenizer.
        model: a preset ("bert-mini") or a configuration file (``config.json``, with custom sizes;
            its vocabulary size is replaced by the tokenizer's) for new weights, or a model
            directory to continue from. Its vocabulary must be the store's, or the store's an
            extension of it (``train_vocab`` with `extend`): new pieces then start as the mean of
            their old ones.
        out: the run's folder; the model directory is ``out/model``.
        steps: updates of the weights.
        tokens: tokens to see, such as 1e8. Turned into steps by the mean length of a batch.
        hours: wall time of the run, kept at any speed of the machine; if `steps` or `tokens` are
            given too, they are the upper limit. Evaluations and checkpoints count. The speed is
            measured first, to plan with (:mod:`bertine.training.fit`).
        objective: masked tokens and next sentences, masked tokens and the order of sentences,
            masked tokens and neighbouring texts, masked tokens only, replaced tokens, the next
            token, a text from a corrupted one, or tokens in any order; None: as in the model's
            paper: mlm-nsp for BERT, mlm-sop for ALBERT, rtd for ELECTRA, clm for GPT-1, denoising
            for BART, plm for XLNet, mlm for the others.
        initialization: how new weights begin: all random, or with heads that look at neighbours and
            at like tokens from the first step on, which learns sooner. See
            :mod:`bertine.families.bert`.
        initializer_range: standard deviation of new weights; None: the model's, 0.02 for the
            presets. Small models learn sooner with larger ones.
        held_out: store of other text, made with the same tokenizer, to evaluate on along the way.
        evaluate_every: steps between evaluations; None: 20 in a run. And between guesses at the
            same hidden words (``samples.jsonl``).
        neighbours_weight: weight of the loss of neighbouring texts in the sum.
        similarity_temperature: number that the cosines of texts are divided by before they are
            compared.
        generator: model directory of a generator to go on with, as it was trained with the model;
            None: a new one. It opens in transformers as ``ElectraForMaskedLM``; of its embeddings
            the model's take the place.
        generator_size: share of the model's width that a new generator has; the paper's are 0.25,
            of the base size 0.33333.
        generator_layers: share of the model's layers that a new generator has.
        generator_weight: weight of the generator's MLM loss in the sum.
        discriminator_weight: weight of the loss of replaced tokens in the sum.
        sampling_temperature: number that the generator's logits are divided by before a token is
            drawn.
        save_generator: write the generator too, to ``out/generator``. It fills masks; the model has
            no head for them.
        infill_share: share of the tokens in spans that one mask takes the place of.
        infill_length: mean length of these spans, in tokens or whole words. Lengths are drawn from
            a Poisson distribution; one of length 0 is a mask that is put in.
        permute_share: share of the sequences whose sentences change their order.
        mask_share: share of the tokens that become the mask one by one.
        delete_share: share of the tokens that are left out without a trace.
        rotate_share: share of the sequences whose texts begin with any of their tokens, what stood
            before it behind the end.
        predict_ratio: share of the tokens that are guessed; the others are known from the
            beginning. 1/6 is the paper's K of 6.
        longest_span: guess runs of up to this many words, shorter ones more often.
        span_context: tokens that are not guessed around a run, for each word of it.
        permuted_length: permute stretches of this many tokens, and guess each before the next;
            None: a sequence as a whole.
        both_directions: read the second half of every batch from the end of the text to its
            beginning.
        memory_length: also look at this many tokens of the text before a sequence, or after it if
            it is read from its end; needs input_format full-sentences. Their states are computed
            anew at every step, and no gradient leads into them.
        batch_size: sequences in an update.
        masked_lm_prob: share of the tokens that are predicted.
        max_predictions_per_seq: most tokens that are predicted in a sequence; None: as many as
            their share asks for in a full one.
        mask_split: of the predicted tokens, the shares that become the mask, become a random token,
            stay; None: as in the objective's paper: 0.8 0.1 0.1, of rtd 0.85 0 0.15.
        short_seq_prob: share of segment pairs that are made shorter at random.
        dupe_factor: with static masking: number of different maskings of the text; BERT's paper has
            ten.
        max_seq_length: tokens of a sequence with its special tokens, at the most.
        input_format: what a sequence is made of; full and doc sentences need objective mlm, rtd,
            clm, denoising or plm, running text needs clm, neighbours mlm-neighbours or mlm; None:
            as in the model's paper: segment pairs for BERT and XLNet, sentence order for ALBERT,
            running text for GPT-1, full sentences for the others. One of segment-pair,
            sentence-pair, full-sentences, doc-sentences, sentence-order, neighbours and
            running-text (:mod:`bertine.corpora.formats`).
        whole_word_mask: choose whole words for prediction.
        ngrams: choose runs of up to this many tokens, or whole words, shorter ones more often;
            ALBERT's paper has 3. A run of n comes with a probability proportional to 1/n
            (:mod:`bertine.corpora.collators`).
        masking: how the tokens to predict are chosen: anew at every step, or (static) in the same
            `dupe_factor` ways again and again. See
            :class:`~bertine.corpora.pretraining_data.PretrainingData`.
        seed: random seed.
        long_seq_length: tokens in a sequence of a second phase, as in the paper; None: one phase.
            The last `long_share` of the steps have sequences of this length. One schedule runs over
            both.
        long_share: share of the steps, for the second phase.
        learning_rate: highest learning rate; None: 1e-4, with `optimizer` lamb 1e-3, muon 3e-4.
        warmup_steps: steps with a rising rate; None: by `warmup_ratio`.
        warmup_ratio: share of the steps with a rising rate, where `warmup_steps` is not given.
        optimizer: AdamW; LAMB, for large batches; or Muon for the matrices of the layers, with
            AdamW for the rest. See :mod:`bertine.training.optimizers`.
        weight_decay: decay of the weights; none on biases and norms.
        adam_beta1: of AdamW and LAMB: how long the first moment remembers.
        adam_beta2: of AdamW and LAMB: how long the second moment remembers.
        adam_epsilon: of AdamW and LAMB; as in the paper's code.
        bias_correction: of AdamW and LAMB; Google's programs have none.
        max_grad_norm: gradients are scaled down to this global norm; 0 does not clip.
        max_tokens_per_micro_batch: compute each update in parts of at most this many tokens: the
            same result in less memory; None: by the device.
        schedule: how the rate changes after the warm-up; one-cycle: momentum too. See
            :mod:`bertine.training.schedules`.
        layer_decay: the rate of each layer as a share of that of the one above.
        dropout: rate of dropout on hidden states and attention; None: the model's own rates.
        patience: stop when the MLM loss on `held_out` has not improved for this many evaluations;
            with objective rtd the sum of both losses. The model directory has the last weights, or
            with `save_best` the best ones.
        precision: number format to compute in; auto is bf16 where it is measured to be clearly
            faster here.
        device: cpu, cuda or cuda:1; None: the GPU if there is one.
        shard: under torchrun: divide weights, gradients and moments among the processes (FSDP), in
            place of keeping all in each.
        checkpoint_every: steps between checkpoints; None: none but that of the best evaluation.
        keep_checkpoints: number of checkpoints to keep; older ones are removed, except that of the
            best evaluation.
        log_every: steps between lines of the log. It is ``log.jsonl``.
        tensorboard: write TensorBoard files as well (needs the package tensorboard).
        workers: processes that make the coming batches while the model computes; the result is the
            same with any number; None: 0 on a CPU, whose cores training uses itself; on a GPU up to
            four. See :func:`bertine.corpora.loader.default_workers`.
        compile: on a GPU, compile the model's parts: it starts slower, to be faster from then on.
            With ``torch.compile``; a CPU does without.
        quiet: print no notes and no progress; warnings and errors are printed all the same.
        resume: go on from the last checkpoint in the output folder, exactly as if never stopped.
        save_best: write the model of the best evaluation on `held_out`, not of the last step. The
            best has the lowest MLM loss, with objective rtd the lowest sum of both losses. Its
            checkpoint is kept in any case.

    Several processes started by ``torchrun`` compute each step together: the batches are those of
    one process, each computes a part, and only the first one writes. Results of the others have no
    findings and no page.

    Raises:
        BertineError: none of `steps`, `tokens` and `hours`, or both of the first two; `out` holds
            another run; a length exceeds the model's positions; the objective does not fit the
            format; a value is out of range or the store does not fit, as described in
            :class:`~bertine.corpora.pretraining_data.PretrainingData` and
            :class:`~bertine.training.fit.FitConfig`.
    """

def pretrain_elmo(
    corpus: Sequence[Path | str] | Path | str,
    *,
    model: Path | str,
    out: Path | str,
    document_per_file: bool = False,
    text_column: str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    precision: Precision = "auto",
    device: str | None = None,
    seed: int = 0,
    checkpoint_every: int | None = 500,
    keep_checkpoints: int = 2,
    log_every: int = 20,
    tensorboard: bool = False,
    resume: bool = False,
    steps: int | None = None,
    epochs: float = 10.0,
    word_splitting: WordSplitting = "punctuation",
    language: str = "en",
    min_count: int = 2,
    vocab_size: int | None = None,
    softmax: SoftmaxName = "auto",
    negatives: int = 8192,
    batch_size: int = 128,
    window: int = 20,
    learning_rate: float = 0.2,
    max_grad_norm: float = 10.0,
    dropout: float | None = None,
    held_out: Path | str | None = None,
    evaluate_every: int | None = None,
) -> ElmoResult:
    """Train ELMo: a forward and a backward language model (Peters et al. 2018, section 3.1).

    The defaults are the published settings: the characters of words as input, a softmax over the
    words of the corpus for the next word, state carried from batch to batch, Adagrad.

    Args:
        corpus: files or folders of text, as :func:`~bertine.train_vocab` reads them; held in memory
            as numbers, 4 bytes a word.
        model: a size by name (elmo-tiny, elmo-mini, elmo-small, elmo-medium, elmo-original), a
            ``config.json`` with custom sizes, or an ELMo to continue from. If that ELMo was trained
            here, its softmax is kept; a published one gets a new softmax.
        out: the run's folder; the model directory is ``out/model``.
        document_per_file: take each plain-text file as one document, blank lines and all.
        text_column: column or key of the text in csv, tsv, Parquet and JSON lines; None: text,
            sentence, or the only column.
        quotes: whether " quotes the cells of csv and tsv; None: in csv, but not in tsv.
        strict: refuse invalid UTF-8 and NUL bytes instead of replacing and counting them.
        precision: number format to compute in; auto is bf16 where it is measured to be clearly
            faster here.
        device: cpu, cuda or cuda:1; None: the GPU if there is one.
        seed: random seed.
        checkpoint_every: steps between checkpoints; None: none.
        keep_checkpoints: number of checkpoints to keep; older ones are removed, except that of the
            best evaluation.
        log_every: steps between lines of the log. It is ``log.jsonl``.
        tensorboard: write TensorBoard files as well (needs the package tensorboard).
        resume: go on from the last checkpoint in the output folder, exactly as if never stopped.
        steps: updates of the weights; None: as many as `epochs` has.
        epochs: passes over the corpus, if `steps` is not given.
        word_splitting: how text becomes words: punctuation apart, or what stands between spaces,
            each line being a sentence.
        language: language of the text, for splitting sentences.
        min_count: rarer words are unknown to the softmax, not to the model.
        vocab_size: words of the softmax at most; None: all.
        softmax: full: every word is compared with all others; sampled: with `negatives` of them;
            auto: full where there are not four times as many words as these.
        negatives: words that a sampled softmax compares with, drawn anew each step.
        batch_size: rows that are read at once.
        window: words of a row in a step; the state goes on, gradients do not.
        learning_rate: learning rate of Adagrad.
        max_grad_norm: gradients are scaled down to this norm; 0 does not clip. They are those of
            the loss times `window`, as published.
        dropout: on what goes into each LSTM and comes out of the last; None: 0.1.
        held_out: text to score along the way and at the end.
        evaluate_every: steps between scores of `held_out`; None: at the end.

    Raises:
        BertineError: no such model or corpus, or too little text; `out` holds another run; more
            negatives than words; a loss that is not finite.
    """

def search(
    task: TaskName,
    *,
    model: Path | str,
    data: Path | str | TableLike,
    out: Path | str,
    batch_sizes: Sequence[int] | int | None = None,
    learning_rates: Sequence[float] | float | None = None,
    epochs: Sequence[int] | int | None = None,
    seeds: Sequence[int] | int | None = None,
    restarts: int | None = None,
    split_seed: int | None = None,
    paper_grid: bool = False,
    processes: int | None = None,
    ray: str | None = None,
    keep_models: bool = False,
    resume: bool = False,
    glue_task: str | None = None,
    text_columns: Sequence[str] | str | None = None,
    label_column: str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    format: LabelledFormat | None = None,
    probability_columns: Sequence[str] | str | None = None,
    label_columns: Sequence[str] | str | None = None,
    label_separator: str | None = None,
    threshold: float = 0.5,
    class_weights: ClassWeights | None = None,
    focal_gamma: float = 0.0,
    long_text: LongText = "head",
    choice_columns: Sequence[str] | str | None = None,
    doc_stride: int | None = None,
    max_question_length: int | None = None,
    max_answer_length: int | None = None,
    word_column: int | None = None,
    tag_column: int | None = None,
    tag_scheme: TagScheme | None = None,
    document_context: bool = False,
    target_column: str | None = None,
    max_target_length: int = 64,
    beams: int = 1,
    length_penalty: float = 1.0,
    no_repeat_ngram_size: int = 0,
    label_smoothing: float = 0.0,
    fresh_weights: bool = False,
    max_length: int | None = None,
    warmup_steps: int | None = None,
    warmup_ratio: float | None = None,
    optimizer: OptimizerName = "adamw",
    weight_decay: float = 0.01,
    adam_beta1: float = 0.9,
    adam_beta2: float = 0.999,
    adam_epsilon: float = 1e-06,
    bias_correction: bool = True,
    max_grad_norm: float = 1.0,
    max_tokens_per_micro_batch: int | None = None,
    schedule: ScheduleName = "linear",
    layer_decay: float = 1.0,
    dropout: float | None = None,
    freeze_layers: int = 0,
    freeze_embeddings: bool = False,
    lm_weight: float | None = None,
    lm_softmax: LmSoftmax = "tokens",
    calibrate: bool = True,
    patience: int | None = None,
    precision: Precision = "auto",
    device: str | None = None,
    checkpoint_every: int | None = None,
    keep_checkpoints: int = 2,
    log_every: int = 10,
    tensorboard: bool = False,
    save_best: bool | None = None,
    workers: int = 0,
    compile: bool = False,
) -> SearchResult:
    """Fine-tune with every combination of batch size, learning rate and epochs, with several seeds
    each, and choose on the validation examples (paper, sections 4.1 and A.3).

    Each run is one of :func:`~bertine.finetune`, in its own folder in `out`. The setting with the
    best mean over its seeds is chosen, without the runs that collapsed to one answer; its best run
    gives the model. The table is also written to ``out/search.json``, and with the spread as a plot
    to ``out/search.html``.

    Args:
        task, model, data: as for `finetune`; for GLUE one task, by `glue_task`.
        out: the folder of the search; the model directory is ``out/model``.
        batch_sizes: examples in an update; None: as finetune by itself. In the paper's grid 16 and
            32.
        learning_rates: highest values of the rate; None: half, once and twice that of finetune by
            itself. In the paper's grid 5e-5, 4e-5, 3e-5 and 2e-5.
        epochs: passes; None: as finetune by itself. In the paper's grid 2, 3 and 4.
        seeds: random seeds of the runs of each setting; None: the first from 0 on. Order, dropout
            and new weights come from them. Validation examples that are held out, because the data
            has none, are the same in all runs.
        restarts: number of seeds, if `seeds` is not given; None: 3.
        split_seed: random seed for holding out validation examples if the data has none, the same
            for all runs; None: 0.
        paper_grid: for the lists that are not given, use the paper's: batches of 16 and 32, rates
            of 5e-5, 4e-5, 3e-5 and 2e-5, 2, 3 and 4 epochs. These are 24 settings; the weights are
            those of the last epoch unless `save_best` says otherwise.
        processes: runs at a time, in processes that share the cores; None: one after the other.
            They take turns with the GPUs. Over Ray None is one a machine or GPU.
        ray: let a Ray cluster do the runs (not followed by an address: auto), or 'local'; needs the
            package ray, and model, data and output where all its machines see them. The address of
            the cluster; the paths must be the same everywhere.
        keep_models: keep the weights of all runs, not of the best alone.
        resume: go on with the search in the output folder; runs that are done are not done again.
            One that was stopped goes on, one that failed is tried again. The grid may be another:
            runs that were done stay in the table.
        glue_task: of glue: CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE or WNLI. Or ``"all"``:
            one run after the other, in ``out/CoLA``, ``out/SST-2``, …, for each task that `data`
            has, and the table of scores. With `resume` those that are finished are not run again.
        text_columns: the text, or the two texts of a pair; None: the usual names. Of multiple
            choice what stands before the choices, the second of two beginning each of them.
        label_column: the label; None: the usual names.
        quotes: whether " quotes cells; None: in csv; in tsv where only so its rows fit the header.
        strict: refuse invalid UTF-8 and NUL bytes (and, where labels are read, rows without one)
            instead of mending, or leaving out, and counting them.
        format: format of the table; columns are column files of words; None: detected from the name
            of the file and its first lines.
        probability_columns: of text: a column for each label with its probability, in place of
            `label_column`; named as the label, or probability_LABEL. They are learned from as they
            are (soft labels); the most probable label is the one that scores count.
        label_columns: of multi-label: a column of 0 and 1 for each label, in place of
            `label_column`.
        label_separator: of multi-label: between labels in one column; None: | ; or , if it occurs.
        threshold: of multi-label: a label is given from this probability on.
        class_weights: of text, multi-label: let every class count the same in the loss, however
            rare; None: every example does. Of many labels, the presence and the absence of each.
        focal_gamma: of text, multi-label: focal loss: what is predicted well already counts less,
            the more so the higher it is (0: cross-entropy).
        long_text: of text, multi-label, regression: what is read of a text longer than
            `max_length`; windows: all of it, scores averaged. See :mod:`bertine.tasks.base`.
        choice_columns: of choice: a column for each choice; None: ending0, choice1, option A, ….
        doc_stride: of spans, squad: tokens from one window of a long context to the next; None:
            128.
        max_question_length: of spans, squad: tokens of a question; longer ones are cut, and
            counted; None: 64.
        max_answer_length: of spans, squad: tokens of the longest answer; None: 30.
        word_column: of tagging: number of the column of the words in a column file; None: the first
            that holds no numbers.
        tag_column: of tagging: number of the column of the tags; None: the last that holds tags.
        tag_scheme: of tagging: how the tags mark entities (BILOU and BMES are IOBES in other
            letters); plain: they do not; None: detected from the tags.
        document_context: of tagging: fill the input with the sentences around, of the same document
            (-DOCSTART-). See BERT's paper, section 5.3.
        target_column: of seq2seq: column of the text to write; None: target, summary, highlights or
            output.
        max_target_length: of seq2seq: tokens of a text to write; longer ones are cut, and counted.
        beams: of seq2seq: sequences that are followed at once when a text is written; one takes the
            least time.
        length_penalty: of seq2seq: with `beams`: above 0 long texts win, the more so the higher it
            is.
        no_repeat_ngram_size: of seq2seq: never write a run of this many tokens twice; 0: no limit.
        label_smoothing: of seq2seq: the share of each target that all words have together in
            training; 0.1 is usual for summaries.
        fresh_weights: take only the architecture and the vocabulary of the model, and begin with
            random weights: what a model reaches without pre-training.
        max_length: tokens of an example; longer ones are cut, and counted; None: 128, spans 384.
            Contexts of spans are not cut, but read in windows.
        warmup_steps: steps with a rising rate; None: by `warmup_ratio`.
        warmup_ratio: share of the steps with a rising rate, where `warmup_steps` is not given;
            None: 0.1, of one-cycle 0.3.
        optimizer: AdamW; LAMB, for large batches; or Muon for the matrices of the layers, with
            AdamW for the rest. See :mod:`bertine.training.optimizers`.
        weight_decay: decay of the weights; none on biases and norms.
        adam_beta1: of AdamW and LAMB: how long the first moment remembers.
        adam_beta2: of AdamW and LAMB: how long the second moment remembers.
        adam_epsilon: of AdamW and LAMB; as in the paper's code.
        bias_correction: of AdamW and LAMB; Google's programs have none.
        max_grad_norm: gradients are scaled down to this global norm; 0 does not clip.
        max_tokens_per_micro_batch: compute each update in parts of at most this many tokens: the
            same result in less memory; None: by the device.
        schedule: how the rate changes after the warm-up; one-cycle: momentum too. See
            :mod:`bertine.training.schedules`.
        layer_decay: the rate of each layer as a share of that of the one above.
        dropout: rate of dropout on hidden states and attention; None: the model's own rates.
        freeze_layers: number of lowest layers that are not trained.
        freeze_embeddings: do not train the embeddings.
        lm_weight: weight of guessing the next token of the inputs, in addition to the task (the λ
            of GPT-1); 0: none; None: 0.5 for openai-gpt, and nothing for other types, which do not
            guess it.
        lm_softmax: what the next token is compared with: the tokens, or, as in OpenAI's code, the
            positions too.
        calibrate: at the end fit a temperature on the validation examples and divide the head by
            it, so that answers are right as often as their probability says; nothing is fitted with
            fewer than 50 examples, or if answers have no probability. Answers stay the same, their
            probabilities change: in files, the server, exported models and other programs, since
            the weights of the head have it. Guo et al. 2017 (:mod:`bertine.tasks.calibration`).
        patience: stop when the task's score on the validation examples has not improved for this
            many epochs, and save the model of the best. Unless `save_best` is False.
        precision: number format to compute in; auto is bf16 where it is measured to be clearly
            faster here.
        device: cpu, cuda or cuda:1; None: the GPU if there is one.
        checkpoint_every: steps between checkpoints; None: one after each epoch. They are removed
            when the model directory has been written.
        keep_checkpoints: number of checkpoints to keep; older ones are removed, except that of the
            best evaluation.
        log_every: steps between lines of the log. It is ``log.jsonl``.
        tensorboard: write TensorBoard files as well (needs the package tensorboard).
        save_best: save the weights of the epoch with the best score on the validation examples, not
            those of the last one; None: where that score is better than the last epoch's by more
            than chance. This means by more than its standard error on that number of examples, and
            by three examples or more. The score is the first metric by which the task is judged:
            for CoLA, Matthews. The examples have then been used to choose: judge the model on
            others.
        workers: processes that make the coming batches while the model computes; the result is the
            same with any number.
        compile: on a GPU, compile the model's parts: it starts slower, to be faster from then on.
            With ``torch.compile``, for runs of many steps; a CPU does without.

    Returns:
        The table and the choice. A run that failed is named in `failed`, with the reason; the
        others are done nevertheless.

    Raises:
        BertineError: an empty list or an invalid value; what `finetune` raises for a run that
            cannot begin, because then none can; `out` holds something else, or a search that is not
            to be resumed, or was begun with other settings.
    """

def serve(
    models: Sequence[str | Path] | str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    api_key_file: Path | str | None = None,
    allowed_hosts: Sequence[str] | str | None = None,
    abstain_below: float | None = None,
    cost_matrix: Path | str | None = None,
    coverage: float | None = None,
    nearest_examples: int = 0,
    examples: Path | str | None = None,
    batch_invariant: bool = False,
    precision: AnswerPrecision = "auto",
    device: str | None = None,
    max_wait_ms: float = 5.0,
    max_batch_tokens: int = 768,
    max_queue: int = 1024,
    max_texts: int = 256,
    max_characters: int = 20000,
    max_body_bytes: int = 1048576,
    max_connections: int = 512,
    request_timeout: float = 30.0,
    read_timeout: float = 10.0,
) -> ServeReport:
    """Serve models over HTTP until SIGTERM or SIGINT; requests in progress are answered first.

    Args:
        models: model directories, each with or without a name (``NAME=DIR``); the first answers
            requests that name none.
        host: address to listen on; 0.0.0.0 is every address of this machine.
        port: port to listen on; 0 takes a free one.
        api_key_file: file with the key that requests must have; None: the environment variable
            BERTINE_API_KEY, else no key. They have it as ``Authorization: Bearer KEY``.
        allowed_hosts: host names the server answers to, besides localhost, its own and IP
            addresses; ``*.NAME`` allows all subdomains, ``*`` allows any.
        abstain_below: of a model that chooses one label, choice or span: leave the answer open
            where its probability is lower, and count how often; of a tagger: leave out such
            entities; None: every text is answered.
        cost_matrix: of a model that chooses one label of a text: csv with what answers cost, a row
            for each true label (in the first column) and a column for each answer; the label of
            least expected cost is given; None: the most probable label. A column ``(no answer)``
            has the cost of leaving the text open.
        coverage: of a model that chooses one label of a text or one choice: also give the set of
            those that holds the right one with this probability; None: no sets. By split conformal
            prediction, on the validation examples of the fine-tuning
            (:mod:`bertine.tasks.calibration`).
        nearest_examples: also show this many labelled examples that are nearest to the text, by the
            vectors that the head reads. The vectors are computed once and kept next to the weights.
        examples: the labelled file to take them from; None: the training file, if it is still there
            and unchanged.
        batch_invariant: compute each text by itself, so that its answer has the same bits with any
            other texts; slower. In batches the last digits of an answer depend on the others.
            Precision auto is then fp32.
        precision: number format to compute in; auto is the fastest whose outputs a check finds
            close to those in fp32.
        device: cpu, cuda or cuda:1; None: the GPU if there is one.
        max_wait_ms: milliseconds a request waits at most for others to share its batch.
        max_batch_tokens: tokens in a batch, at most. A longer input is computed by itself.
        max_queue: texts (or windows of long ones) that may wait for a model.
        max_texts: texts in a request (2,048 for /v1/embeddings).
        max_characters: characters of a text.
        max_body_bytes: bytes of a request.
        max_connections: connections open at once.
        request_timeout: seconds before a request times out.
        read_timeout: seconds a client has to send its headers, again for its body, and again to
            read each 16 KB of the answer.

    Raises:
        BertineError: a package is missing, no such model, a name twice, a port in use, an empty
            key, a limit that leaves nothing to serve, an allowed host that is not a host name.
    """

def similar(
    query: str | Sequence[str] | None = None,
    input: Path | str | TableLike | None = None,
    *,
    model: Embedder | Path | str,
    texts: Path | str | TableLike | None = None,
    queries: Path | str | TableLike | None = None,
    index: Path | str | None = None,
    output: Path | str | None = None,
    top: int = 10,
    show_progress: bool = True,
    pooling: VectorPooling | None = None,
    layer: int | None = None,
    max_length: int | None = None,
    dimensions: int | None = None,
    prompt: str | None = None,
    text_column: str | None = None,
    format: PlainFormat | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    precision: AnswerPrecision = "auto",
    device: str | None = None,
    query_prompt: str | None = None,
    word: str | None = None,
) -> Neighbours | NearestWords | BatchSearch:
    """Find the rows of a file whose texts are most similar to `query`: the highest cosines, in
    bounded memory. With vectors of words and no file, find the nearest words.

    Args:
        query: a text, or a list of texts that are searched together.
        input: a table of texts as :func:`~bertine.embed` reads it, or vectors
            (``.npy``, ``.parquet``, ``.jsonl``) that it has written with the same model, pooling
            and layer, which their JSON file records. Or a table in memory, with or
            without such vectors: a pandas or polars frame, an Arrow table, a ``datasets.Dataset``,
            a list of dictionaries, a dictionary of columns. None: the words of the vectors
            themselves.
        model: a model directory; vectors of words (:func:`~bertine.word2vec`), where a text has the
            mean of its words' vectors; or a loaded :class:`~bertine.Embedder`, whose own settings
            then apply.
        texts: for a ``.npy``, the table that it was made from, in a file or in memory; None: rows
            are shown by number.
        queries: a table of queries in place of `query`, in a file or in memory: its column
            ``query``, ``text``, ``sentence``, or the only one.
        index: for a ``.npy``, its index by :func:`~bertine.index_vectors` (a folder): the search
            reads a part of the vectors, and may miss some of the nearest. None: all are compared.
        output: a .csv, .tsv, .jsonl or .parquet file, written completely or not at all, or ``-``: a
            row for each query and each of its nearest rows, with ``query_row``, ``query``,
            ``rank``, ``row``, ``score`` and, where there are texts, ``text`` and the other columns
            of their table; those of the queries' table have ``query_`` before their names. None:
            they are returned.
        top: the number of nearest rows.
        show_progress: on stderr.
        pooling: how the tokens' states are combined into one vector; None: as the model directory
            says, else mean.
        layer: layer whose states are used: 0 is the embeddings, -1 the last layer, -2 the one
            before it; None: the last.
        max_length: pieces of a text, longer ones are cut; None: as the model directory says, else
            all that the model has positions for.
        dimensions: keep only this many of a vector's first numbers; for static vectors, and models
            that are trained for it ('bertine finetune similarity' with lengths of vectors); None:
            as the model directory says, else all. What is kept has length 1 again where whole
            vectors have.
        prompt: one of the prompts of the model directory, put before every text; '' for none; None:
            its prompt for documents, else its default.
        text_column: the text; None: text, sentence, or the only column.
        format: format of the input; None: detected from the name of the file and its first line.
        quotes: whether " quotes cells; None: in csv; in tsv where only so its rows fit the header.
        strict: refuse invalid UTF-8 and NUL bytes (and, where labels are read, rows without one)
            instead of mending, or leaving out, and counting them.
        precision: number format to compute in; auto is bf16 where it is measured to be clearly
            faster here; int8, on CPUs, turns vectors a little.
        device: cpu, cuda or cuda:1; None: the GPU if there is one.
        query_prompt: one of the same prompts, put before the queries alone; '' for none; None: that
            of `prompt`, else the model's prompt for queries, else its default.
        word: compare this word as it stands in each text, and in the query, not the texts; None:
            whole texts. Of several pieces the mean of their vectors; at its first place in a text.
            Rows without the word are left out and counted.

    Returns:
        The nearest rows of the query, or the nearest words; for several queries, or with an output
        file, :class:`~bertine.inference.embedding.similar.BatchSearch`.

    Raises:
        BertineError: no such model; a table cannot be read; an array of another width than the
            model's vectors, or made with another model, pooling or layer; an index of other
            vectors; a table of other texts than the vectors were made from; options for reading
            texts with a ``.npy`` alone; more queries than fit into memory, where texts have no
            vectors yet.
    """

def train_vocab(
    corpus: Sequence[Path | str] | Path | str,
    out: Path | str,
    *,
    hold_out_every: int = 50,
    kind: TokenizerKind = "wordpiece",
    special_tokens: SpecialStyle | None = None,
    vocab_size: int = 30522,
    extend: Path | str | None = None,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    split_chinese: bool = True,
    min_frequency: int = 2,
    limit_alphabet: int | None = None,
    document_per_file: bool = False,
    text_column: str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
) -> VocabReport:
    """Train a vocabulary and write the tokenizer's folder `out`.

    The same corpus and options give the same vocabulary. The corpus is read twice, for byte-level
    BPE and Unigram once.

    Args:
        corpus: files and folders, as for :class:`bertine.tokenization.documents.Corpus`.
        out: folder for vocab.txt, tokenizer.json and tokenizer_config.json. An existing tokenizer
            folder is replaced; a folder with anything else in it is refused.
        hold_out_every: one in this number of lines is not trained on, but used for measuring.
        kind: wordpiece: BERT's; byte-bpe: RoBERTa's byte-level BPE, which keeps case and accents,
            has no unknown characters, and takes none of the options for them; unigram: ALBERT's;
            word-bpe: GPT-1's. byte-bpe and word-bpe write ``vocab.json`` and ``merges.txt`` in
            place of ``vocab.txt``, unigram nothing but ``tokenizer.json``, which has the pieces
            with their probabilities.
        special_tokens: of byte-bpe: roberta: <s> and </s> around texts; bert: names and places as
            BERT has them, which is how ModernBERT reads; of unigram: albert: as BERT; xlnet: <sep>
            behind each text, and <cls> last; None: roberta, albert.
        vocab_size: pieces, special tokens and single characters included.
        extend: keep the tokens of this tokenizer or model, and add to them up to `vocab_size`; text
            is read as it reads it. They keep their ids; `lowercase`, `strip_accents` and
            `split_chinese` are its own.
        lowercase: lowercase the text, or keep its case; None: lowercased for WordPiece and Unigram.
        strip_accents: remove accents; None: stripped where text is lowercased, kept where it is
            cased.
        split_chinese: make every Chinese character a word.
        min_frequency: rarer pieces are left out. Of pairs seen less often none is made.
        limit_alphabet: keep the N most frequent characters; None: as many as make up 99.99% of the
            text. Words with others are unknown. 99.99% are about a hundred in English and some
            seven thousand in Chinese. By itself it keeps more if they take no more than a twentieth
            of the vocabulary, and fewer if they would leave too little room for pieces of words. In
            text whose characters all stand inside words (English) that room is half of the
            vocabulary; in text of characters that are words by themselves (Chinese with
            `split_chinese`), which are never joined to longer pieces, it is little: half of the
            vocabulary times the share of the text that stands inside words. With `extend` it is
            that share of what is added. The report says how large the vocabulary must be for
            99.99%.
        document_per_file: take each plain-text file as one document, blank lines and all.
        text_column: column or key of the text in csv, tsv, Parquet and JSON lines; None: text,
            sentence, or the only column.
        quotes: whether " quotes the cells of csv and tsv; None: in csv, but not in tsv.
        strict: refuse invalid UTF-8 and NUL bytes instead of replacing and counting them.

    Returns:
        The report; its `lines()` are for people.

    Raises:
        BertineError: the corpus has an error, `vocab_size` is too small for its alphabet, `kind` is
            unknown or does not support an option, or `out` is a folder of something else.
    """

def word2vec(
    corpus: Sequence[Path | str] | Path | str,
    out: Path | str,
    *,
    show_progress: bool = True,
    method: WordVectorModel = "skip-gram",
    dimensions: int = 100,
    window: int = 5,
    min_count: int = 5,
    max_words: int | None = None,
    lowercase: bool = True,
    negatives: int = 5,
    negative_exponent: float = 0.75,
    subsample: float = 0.001,
    epochs: int = 5,
    learning_rate: float | None = None,
    document_per_file: bool = False,
    text_column: str | None = None,
    quotes: bool | None = None,
    strict: bool = False,
    seed: int = 0,
    resume: bool = False,
) -> Word2VecReport:
    """Train a vector for each word of a corpus, with negative sampling, on one thread.

    The same corpus, options and seed give the same vectors on the same machine. The corpus is read
    twice; in between, the numbers of its words are in a temporary file next to `out`, four bytes a
    word, so memory holds the vectors and not the text. A checkpoint is written each minute to
    ``.NAME.unfinished`` next to `out`: with `resume`, a stopped or killed run continues, bit for
    bit.

    Args:
        corpus: files and folders, as for :class:`bertine.tokenization.documents.Corpus`.
        out: the folder of the vectors (:class:`bertine.WordVectors`), or a file of word2vec's:
            ``.bin``, ``.txt`` or ``.vec``. Existing vectors are replaced.
        show_progress: on stderr.
        method: skip-gram: a word is to predict each word around it; cbow: the mean of those around
            is to predict it, which is quicker and has less of rare words.
        dimensions: numbers of a vector.
        window: words to each side, at most. For each word a number from 1 to this is drawn.
        min_count: rarer words get no vector, and are left out of the text.
        max_words: give a vector only to this many of the most frequent words; None: all.
        lowercase: lowercase the text.
        negatives: random words drawn to contrast with each pair.
        negative_exponent: power of the word counts; negatives are drawn in proportion to it.
        subsample: of words that are a larger share of the text than this, occurrences are left out
            by chance; 0 keeps all.
        epochs: passes over the text.
        learning_rate: learning rate at first; it falls to 0; None: 0.025 for skip-gram, 0.05 for
            cbow.
        document_per_file: take each plain-text file as one document, blank lines and all.
        text_column: column or key of the text in csv, tsv, Parquet and JSON lines; None: text,
            sentence, or the only column.
        quotes: whether " quotes the cells of csv and tsv; None: in csv, but not in tsv.
        strict: refuse invalid UTF-8 and NUL bytes instead of replacing and counting them.
        seed: random seed.
        resume: go on with a run that was stopped, exactly as if never stopped. Its
            ``.NAME.unfinished`` is next to `out`; if there is none, a new run begins.

    Returns:
        The report; its `lines()` are for people.

    Raises:
        BertineError: the corpus has an error; too few words are frequent enough; the learning rate
            is too high; `out` is a folder of something else; with `resume`, the stopped run had
            other settings or another text.
    """
