"""Reads RCV1-v2 as its authors publish it (LYRL2004): documents as sparse vectors, one topic against the rest."""

import difflib
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paceline.core.errors import DataError
from paceline.data.dataset import Array, Dataset, Labelled, Rows
from paceline.data.files import at, folder_at, parsed, plain_or_packed, reading
from paceline.data.svmlight import Numbering, SparseRows

TRAIN = "lyrl2004_vectors_train.dat"
TESTS = tuple(f"lyrl2004_vectors_test_pt{part}.dat" for part in range(4))
TOPICS = "rcv1-v2.topics.qrels"
FEATURES = 47_236
WHERE = (
    f"Get {TRAIN}, {TESTS[0]} to pt3 and {TOPICS} (each as it is or .gz) into one folder; "
    "http://www.ai.mit.edu/projects/jmlr/papers/volume5/lewis04a/lyrl2004_rcv1v2_README.htm says where they are."
)
VECTOR = "Expected lines like '2286  12:0.5 70:0.25': a document, then features from 1, none twice."
JUDGEMENT = "Expected lines like 'CCAT 2286 1': a topic, a document that has it, and 1."


def read_rcv1(folder: str | Path, topic: str = "CCAT", features: int = FEATURES) -> Dataset:
    """float32 features (N, features), a scipy.sparse.csr_array; labels int64 (N,), 1 where the document has the topic,
    otherwise 0. The test set is those of its four files that exist, in their order; without any there is none. Files may be
    gzipped. Topics of documents that are in no file are passed over, since all topics come in one file; a document may
    have no features. DataError: a missing file, a topic that does not occur or that all documents have, a document
    without topics or that comes twice, a bad line; lines are named with their file."""
    folder = folder_at(folder, WHERE)
    with reading(folder, WHERE):
        found = {name: plain_or_packed(folder, name) for name in (TRAIN, *TESTS, TOPICS)}
    vectors, topics = found[TRAIN], found[TOPICS]
    if vectors is None or topics is None:
        raise DataError(f"{folder} lacks {TRAIN if vectors is None else TOPICS}. {WHERE}")
    documents, having, found_topics = _documents(topics, topic)
    start = _State(Numbering(features, from_one=True), topics, documents, np.zeros(len(documents), np.bool_))
    train, state = _read([vectors], start, having)
    if len(np.unique(train.labels)) < 2:
        share = "All" if train.labels[0] else "None"
        raise DataError(
            f"{share} of the documents in {vectors} have the topic {topic!r}. {_others(topic, found_topics)}"
        )
    tests = [file for name in TESTS if (file := found[name])]
    test = _read(tests, state, having)[0] if tests else None
    return Dataset(train, test, classes=(f"not {topic}", topic))


def read_documents(path: str | Path, topic: str, features: int = FEATURES) -> tuple[Any, Array | None]:
    """The documents of one file as sparse rows, and for each 1 where it has the topic, otherwise 0, int64; None where the file
    with the topics is not next to it. DataError: a bad line, a document without topics."""
    file = at(path)
    with reading(file, WHERE):
        topics = plain_or_packed(file.parent, TOPICS)
    rows = SparseRows()
    if topics is None:
        numbering = rows.read(file, Numbering(features, from_one=True), VECTOR)
        return rows.array(numbering), None
    documents, having, _ = _documents(topics, topic)
    state = _State(Numbering(features, from_one=True), topics, documents, np.zeros(len(documents), np.bool_))
    state = rows.read(file, state, VECTOR)
    return rows.array(state.numbering), np.isin(rows.labels.array(), having).astype(np.int64)


class _State(NamedTuple):
    """Which documents have been read, and which may be."""

    numbering: Numbering
    topics: Path
    documents: Rows
    """Those that have topics, in rising order."""
    is_read: npt.NDArray[np.bool_]

    def after(self, labels: Array, indices: Array) -> "_State":
        """The state when the documents of these numbers have been read, too. ValueError where one has no topics or was
        read before."""
        places = np.minimum(np.searchsorted(self.documents, labels), len(self.documents) - 1)
        unknown = labels[self.documents[places] != labels]
        if len(unknown):
            raise ValueError(f"document {unknown[0]:.15g} has no topic in {self.topics}")
        is_read = self.is_read.copy()
        is_read[places] = True
        if np.count_nonzero(is_read) < np.count_nonzero(self.is_read) + len(labels):
            raise ValueError("the document has come before")
        return self._replace(numbering=self.numbering.after(labels, indices), is_read=is_read)


def _read(files: list[Path], state: _State, having: Rows) -> tuple[Labelled, _State]:
    """The documents of one set. `having`: the documents that have the topic."""
    rows = SparseRows()
    for file in files:
        state = rows.read(file, state, VECTOR)
    labels = np.isin(rows.labels.array(), having).astype(np.int64)
    return Labelled(rows.array(state.numbering), labels), state


def _documents(path: Path, topic: str) -> tuple[Rows, Rows, Counter[str]]:
    """All documents that have topics and those that have this one, in rising order, and how many have each topic."""
    every: list[Rows] = []
    having: list[Rows] = []
    topics: Counter[str] = Counter()
    for judgements in parsed(path, _judgements, JUDGEMENT):
        documents, names = judgements["document"].to_numpy(), judgements["topic"]
        every.append(np.unique(documents))
        having.append(documents[names.to_numpy() == topic])
        topics.update({pair["values"]: pair["counts"] for pair in names.value_counts().to_pylist()})
    if not topics:
        raise DataError(f"{path} is empty. {JUDGEMENT}")
    if topic not in topics:
        raise DataError(f"{path} has no topic {topic!r}. {_others(topic, topics)}")
    return np.unique(np.concatenate(every)), np.unique(np.concatenate(having)), topics


def _others(topic: str, topics: Counter[str]) -> str:
    """Which topics may be meant, for people."""
    near = [name for name in difflib.get_close_matches(topic.upper(), topics, 4) if name != topic][:3]
    meant = f"The nearest of its {len(topics):,} topics are {', '.join(near)}; the" if near else "The"
    most = ", ".join(name for name, _ in topics.most_common(8) if name != topic)
    return f"Set svm.positive to another topic (topic=... of read_rcv1). {meant} most frequent ones are {most}."


def arrows_own(content: bytes) -> Any:
    """A file of these bytes that holds nothing of Python's. Arrow's threads let go of a file some time after the reader has
    returned; one of Python's needs the interpreter for that, and where it is ending by then, the process aborts."""
    import pyarrow as pa

    memory = pa.BufferOutputStream()
    memory.write(content)
    return pa.BufferReader(memory.getvalue())


def _judgements(block: bytes) -> Any:
    """The lines as a pyarrow.Table with columns topic and document. ValueError where one is otherwise."""
    import pyarrow as pa
    from pyarrow import csv

    kinds = {"topic": pa.string(), "document": pa.int64(), "judgement": pa.int64()}
    table = csv.read_csv(
        arrows_own(block),
        csv.ReadOptions(column_names=list(kinds)),
        csv.ParseOptions(delimiter=" "),
        csv.ConvertOptions(column_types=kinds),
    )
    if not (table["judgement"].to_numpy() == 1).all() or table["document"].null_count:
        raise ValueError("a document or its judgement, which is always 1, is missing")
    return table
