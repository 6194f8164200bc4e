"""RCV1 as its authors publish it becomes sparse rows with one topic against the rest, or is refused with file and line."""

import gzip
import uuid
from pathlib import Path

import numpy as np
import pytest

from paceline.core.errors import DataError
from paceline.data import files, out_of_core
from paceline.data.files import at
from paceline.data.out_of_core import is_mapped
from paceline.data.rcv1 import TESTS, TOPICS, TRAIN, read_rcv1

QRELS = "CCAT 2286 1\nE11 2287 1\nECAT 2287 1\nGCAT 2288 1\nCCAT 810000 1\nGCAT 810001 1\nM11 777 1\n"
VECTORS = "2286  1:0.04 1523:0.0444\n2287  864:0.123456789012345678\n2288  47236:1\n"


def put(folder: Path, **changed: str) -> Path:
    """A folder with three documents for training; `changed`: other content of train, topics, test0 to test3."""
    names = {"train": TRAIN, "topics": TOPICS} | {f"test{part}": name for part, name in enumerate(TESTS)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in ({"train": VECTORS, "topics": QRELS} | changed).items():
        (folder / names[name]).write_bytes(content.encode())
    return folder


def test_a_document_is_a_sparse_row_labelled_by_its_topic(tmp_path: Path):
    dataset = read_rcv1(put(tmp_path))

    features = dataset.train.features
    assert features.format == "csr"
    assert features.shape == (3, 47_236)
    assert features.dtype == np.float32
    assert features.indices.tolist() == [0, 1522, 863, 47_235]
    assert features.data[2] == np.float32(0.123456789012345678)
    assert dataset.train.labels.tolist() == [1, 0, 0]
    assert dataset.train.labels.dtype == np.int64
    assert dataset.test is None


@pytest.mark.parametrize(("topic", "labels"), [("E11", [0, 1, 0]), ("ECAT", [0, 1, 0]), ("GCAT", [0, 0, 1])])
def test_any_topic_is_set_against_the_rest(tmp_path: Path, topic: str, labels: list[int]):
    dataset = read_rcv1(put(tmp_path), topic)

    assert dataset.train.labels.tolist() == labels
    assert dataset.classes == (f"not {topic}", topic)


def test_those_test_files_that_are_there_are_the_test_set_in_their_order(tmp_path: Path):
    dataset = read_rcv1(put(tmp_path, test3="810000  3:1\n", test1="810001  2:1\n777\n"))

    assert dataset.test.features.indices.tolist() == [1, 2]
    assert dataset.test.features.indptr.tolist() == [0, 1, 1, 2]
    assert dataset.test.features.shape == (3, 47_236)
    assert dataset.test.labels.tolist() == [0, 0, 1]


def test_gzipped_files_in_a_store_are_the_same(tmp_path: Path):
    store = at(f"memory://{uuid.uuid4().hex}")
    store.mkdir(parents=True)
    plain = put(tmp_path, test0="810000  3:1\n")
    for file in plain.iterdir():
        (store / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))

    assert read_rcv1(str(store)).digest() == read_rcv1(plain).digest()


def test_many_small_blocks_and_a_file_for_what_is_read_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(0)
    documents = np.sort(rng.choice(810_597, 300, replace=False))
    vectors = [
        f"{document}  "
        + " ".join(f"{index}:{rng.random()}" for index in np.sort(rng.choice(500, 9, replace=False)) + 1)
        for document in documents
    ]
    topics = "".join(
        f"{('CCAT', 'GCAT')[document % 2]} {document} 1\nC{document % 7} {document} 1\n" for document in documents
    )
    folder = put(tmp_path, train="\n".join(vectors[:200]), test0="\n".join(vectors[200:]), topics=topics)
    whole = read_rcv1(folder)
    monkeypatch.setattr(files, "PIECE_BYTES", 1000)
    monkeypatch.setattr(out_of_core, "IN_MEMORY", 1000)

    pieces = read_rcv1(folder)

    assert pieces.digest() == whole.digest()
    assert pieces.train.labels.tolist() == (documents[:200] % 2 == 0).astype(int).tolist()
    assert is_mapped(pieces.train.features.data)
    assert is_mapped(pieces.train.features.indices)


def test_the_number_of_features_can_be_given(tmp_path: Path):
    assert read_rcv1(put(tmp_path), features=50_000).train.features.shape == (3, 50_000)
    with pytest.raises(DataError, match=r"train.dat: line 3 .*47236:1.* is 47,236, but there are 47,235 features"):
        read_rcv1(tmp_path, features=47_235)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2287  47237:1", r"an index is 47,237, but there are 47,236 features, counted from 1"),
        ("2287  0:1", r"an index is 0; expected 1 or more"),
        ("2287  3:1 2:1 3:1", r"index 3 comes twice"),
        ("2287  3:1 3:1", r"index 3 comes twice"),
        ("2287  3:nan", r"a number is NaN, infinite or too large"),
        ("2287  3:x", r"could not convert string to float"),
        ("2287  3", r"a feature is not written as index:value"),
        ("2287  -3:1", r"Invalid index -3"),
        ("2287  3:inf", r"a number is NaN, infinite or too large"),
        ("2287  3.5:1", r"invalid literal for int"),
        ("CCAT 2287 1", r"could not convert string to float"),
        ("2289  3:1", r"document 2289 has no topic in .*rcv1-v2\.topics\.qrels"),
        ("2287.5  3:1", r"document 2287\.5 has no topic"),
        ("2286  3:1", r"the document has come before"),
    ],
)
def test_a_bad_vector_is_refused_with_its_line(tmp_path: Path, line: str, message: str):
    folder = put(tmp_path, train=f"2286  1:1\n{line}\n2288  1:1\n")

    with pytest.raises(DataError, match=rf"train\.dat: line 2 \('.*'\): .*{message}.*Expected lines like"):
        read_rcv1(folder)


@pytest.mark.parametrize(
    "line", ["CCAT", "CCAT x 1", "CCAT  3 1", "CCAT 3 0", "CCAT  1", "CCAT 3 1 1", "2286  1:0.5 2:1"]
)
def test_a_bad_line_of_topics_is_named(tmp_path: Path, line: str):
    folder = put(tmp_path, topics=f"CCAT 2286 1\n{line}\n")

    with pytest.raises(DataError, match=r"topics\.qrels: line 2 \('.*'\): .*Expected lines like 'CCAT 2286 1'"):
        read_rcv1(folder)


def test_a_topic_that_does_not_occur_names_near_ones_and_frequent_ones(tmp_path: Path):
    folder = put(tmp_path)

    with pytest.raises(DataError, match=r"has no topic 'ecat'.* nearest of its 5 .* ECAT, .* frequent .* CCAT, "):
        read_rcv1(folder, "ecat")
    with pytest.raises(DataError, match=r"has no topic 'XYZ'\. Set svm\.positive .*\. The most frequent ones"):
        read_rcv1(folder, "XYZ")


@pytest.mark.parametrize(
    ("topic", "share", "topics"),
    [("M11", "None", QRELS), ("CCAT", "All", "".join(f"CCAT {document} 1\n" for document in (2286, 2287, 2288)))],
)
def test_a_topic_that_tells_no_training_documents_apart_is_refused(tmp_path: Path, topic: str, share: str, topics: str):
    with pytest.raises(DataError, match=rf"{share} of .*train\.dat have the topic '{topic}'\. Set svm\.pos"):
        read_rcv1(put(tmp_path, topics=topics), topic)


@pytest.mark.parametrize("name", [TRAIN, TOPICS])
def test_a_missing_file_is_named(tmp_path: Path, name: str):
    (put(tmp_path) / name).unlink()

    with pytest.raises(DataError, match=rf"lacks {name}\. Get lyrl2004_vectors_train\.dat, .*lyrl2004_rcv1v2_README"):
        read_rcv1(tmp_path)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"train": ""}, r"train\.dat holds no examples"),
        ({"test0": ""}, r"lyrl2004.* holds no examples"),
        ({"topics": ""}, r"topics\.qrels is empty"),
        ({"topics": "CCAT 5 1\nGCAT 6 1\n"}, r"train\.dat: line 1 .*document 2286 has no topic in"),
        ({"test2": "810000  1:1\n2287  1:1\n"}, r"test_pt2\.dat: line 2 \('2287  1:1'\): the document has come before"),
    ],
    ids=["no examples", "no test examples", "no topics", "topics of other documents", "a test document of training"],
)
def test_files_that_do_not_fit_together_are_refused(tmp_path: Path, changed: dict[str, str], told: str):
    with pytest.raises(DataError, match=told):
        read_rcv1(put(tmp_path, **changed))


@pytest.mark.parametrize("name", [TRAIN, TESTS[1], TOPICS])
def test_a_cut_packed_file_is_named(tmp_path: Path, name: str):
    put(tmp_path, test1="810000  3:1\n")
    whole = gzip.compress((tmp_path / name).read_bytes())
    (tmp_path / name).unlink()
    (tmp_path / f"{name}.gz").write_bytes(whole[:-9])

    with pytest.raises(DataError, match=rf"Can't read .*{name}\.gz: .*end-of-stream.* Expected lines like"):
        read_rcv1(tmp_path)


def test_no_folder_is_told(tmp_path: Path):
    with pytest.raises(DataError, match=r"nowhere does not exist\. Get lyrl2004_vectors_train\.dat"):
        read_rcv1(tmp_path / "nowhere")
