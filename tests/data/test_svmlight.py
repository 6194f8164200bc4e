"""LIBSVM text becomes dense or sparse rows with class numbers, or is refused with file and line."""

import bz2
import codecs
import gzip
import io
import lzma
import uuid
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file, load_digits, load_svmlight_files

from paceline.core.errors import DataError
from paceline.data import files, out_of_core, svmlight
from paceline.data.files import at
from paceline.data.out_of_core import is_mapped
from paceline.data.svmlight import read_rows, read_svmlight

TEXT = "+1 1:0.5 3:2\n-1 2:1 # a comment\n+1 4:-3e2\n"


def written(folder: Path, text: str, name: str = "a.libsvm") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_lines_become_dense_rows_and_labels_class_numbers(tmp_path: Path):
    dataset = read_svmlight(written(tmp_path, TEXT))

    assert dataset.train.features.tolist() == [[0.5, 0, 2, 0], [0, 1, 0, 0], [0, 0, 0, -300]]
    assert dataset.train.features.dtype == np.float32
    assert dataset.train.labels.tolist() == [1, 0, 1]
    assert dataset.train.labels.dtype == np.int64
    assert dataset.classes == ("-1", "1")
    assert dataset.test is None


def test_plain_lines_are_read_as_scikit_learn_reads_them_to_the_bit():
    rng = np.random.default_rng(3)
    lines = []
    for _ in range(500):
        indices = np.sort(rng.choice(2000, rng.integers(0, 9), replace=False))
        forms = rng.choice(["{:.17g}", "{:+.3e}", "{:.0f}", "{:.4f}"], len(indices) + 1)
        label, *values = (form.format(value) for form, value in zip(forms, rng.normal(0, 3, len(forms)), strict=True))
        lines.append(" \t"[rng.integers(2)].join([label, *map("{}:{}".format, indices, values)]))
    block = ("\r\n".join(lines)).encode()
    theirs, labels = load_svmlight_files([io.BytesIO(block)], dtype=np.float32, zero_based=True)

    ours, own = svmlight._plain(block) or (None, None)

    assert ours is not None
    assert own.tobytes() == labels.tobytes()
    for what in ("data", "indices", "indptr"):
        assert getattr(ours, what).tolist() == getattr(theirs, what).tolist()


@pytest.mark.parametrize(
    "line",
    [
        "1 2:1 1:1",
        "1 2:1 2:1",
        "1 # 2:1",
        "",
        "1 qid:3 1:1",
        "1 2",
        "1 2:",
        "1e",
        "1 2: 3",
        "1 1:nan",
        "1 9999999999:1",
        "1:2 3:4",
    ],
)
def test_lines_that_are_not_plain_are_left_to_scikit_learn(line: str):
    assert svmlight._plain(f"1 1:1\n{line}\n-1 3:4\n".encode()) is None


def test_indices_count_from_zero_where_one_is_zero(tmp_path: Path):
    assert read_svmlight(written(tmp_path, "0 0:7 2:1\n")).train.features.tolist() == [[7, 0, 1]]


def test_both_files_get_the_same_features_and_classes(tmp_path: Path):
    test = written(tmp_path, "3 1:1\n5 6:1\n", "test")

    dataset = read_svmlight(written(tmp_path, "5 1:1\n9 2:1\n"), test)

    assert dataset.train.features.shape == (2, 6)
    assert dataset.test.features.tolist() == [[1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1]]
    assert dataset.train.labels.tolist() == [1, 2]
    assert dataset.test.labels.tolist() == [0, 1]


def test_the_number_of_features_can_be_given(tmp_path: Path):
    file = written(tmp_path, TEXT)

    assert read_svmlight(file, features=9).train.features.shape == (3, 9)
    with pytest.raises(DataError, match=r"a\.libsvm: line 3 \('\+1 4:-3e2'\): an index is 4, but there are 3"):
        read_svmlight(file, features=3)


def test_an_index_zero_makes_the_last_one_too_large(tmp_path: Path):
    file = written(tmp_path, "1 3:1\n0 1:1\n1 0:1\n")

    with pytest.raises(DataError, match=r"line 3 \('1 0:1'\): an index is 3, but there are 3 features, counted from 0"):
        read_svmlight(file, features=3)


def test_sparse_rows_are_kept_where_asked(tmp_path: Path):
    dataset = read_svmlight(written(tmp_path, TEXT), dense=False)

    features = dataset.train.features
    assert features.format == "csr"
    assert features.dtype == np.float32
    assert features.indices.dtype == np.int32
    assert features.indices.tolist() == [0, 2, 1, 3]
    assert features.data.tolist() == [0.5, 2, 1, -300]
    assert features.indptr.tolist() == [0, 2, 3, 4]
    assert features.shape == (3, 4)
    assert dataset.train.labels.tolist() == [1, 0, 1]


def test_a_line_with_a_label_only_is_an_example_of_zeros_and_an_empty_line_is_none(tmp_path: Path):
    dataset = read_svmlight(written(tmp_path, "\n# a comment\n1\n0 2:1\n\n1 # nothing\n"))

    assert dataset.train.features.tolist() == [[0, 0], [0, 1], [0, 0]]
    assert dataset.train.labels.tolist() == [1, 0, 1]


def test_sparse_rows_may_have_up_to_two_to_the_31st_features(tmp_path: Path):
    most = 2**31 - 1

    from_one = read_svmlight(written(tmp_path, f"1 1:1 {most}:2\n"), features=most, dense=False).train.features
    from_zero = read_svmlight(written(tmp_path, f"1 0:1 {most}:2\n"), features=2**31, dense=False).train.features

    assert from_one.shape == (1, most)
    assert from_one.indices.tolist() == [0, most - 1]
    assert from_zero.shape == (1, 2**31)
    assert from_zero.indices.tolist() == [0, most]
    with pytest.raises(DataError, match=r"line 1 \('1 2147483648:1'\): an index is above 2,147,483,647"):
        read_svmlight(written(tmp_path, "1 2147483648:1\n"), dense=False)


@pytest.mark.parametrize("dense", [True, False])
def test_many_small_blocks_and_a_file_for_what_is_read_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dense: bool
):
    digits, classes = load_digits(return_X_y=True)
    digits[700, 0] = 1  # otherwise no example has the first feature, and none shows that the file counts from 0
    text = io.BytesIO()
    dump_svmlight_file(digits, classes, text, zero_based=False)
    (tmp_path / "a").write_bytes(text.getvalue())
    dump_svmlight_file(digits, classes, str(tmp_path / "zero"), zero_based=True)
    whole = read_svmlight(tmp_path / "a", dense=dense)
    for module in (files, out_of_core):
        monkeypatch.setattr(module, "PIECE_BYTES", 10_000)
    monkeypatch.setattr(out_of_core, "IN_MEMORY", 5_000)

    for name in ("a", "zero"):
        pieces = read_svmlight(tmp_path / name, features=64, dense=dense)
        features = pieces.train.features
        assert np.array_equal(features if dense else features.toarray(), digits)
        assert all(map(is_mapped, [features] if dense else [features.data, features.indices]))
        assert pieces.train.labels.tolist() == classes.tolist()
    assert np.array_equal(whole.train.features if dense else whole.train.features.toarray(), digits)


def test_a_line_is_counted_over_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "PIECE_BYTES", 100)
    lines = [f"{line % 2} {line + 1}:1" for line in range(500)]
    lines[432] = "1 7:1 7:2"

    with pytest.raises(DataError, match=r"a\.libsvm: line 433 \('1 7:1 7:2'\): index 7 comes twice\. Expected LIBSVM"):
        read_svmlight(written(tmp_path, "\n".join(lines)))


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize(("first", "row"), [(1, 4), (0, 2)])
def test_an_index_with_one_digit_too_many_is_named_before_a_model_of_that_size_is_made(
    tmp_path: Path, dense: bool, first: int, row: int
):
    lines = [f"{number % 2} {first}:1 {number + 2}:1" for number in range(8)]
    lines[row - 1] += " 60000000:1"

    with pytest.raises(DataError, match=rf"has the index 60,000,000 in example {row}, and all others are below"):
        read_svmlight(written(tmp_path, "\n".join(lines)), dense=dense)


@pytest.mark.parametrize("indices", [range(1, 60_000_000, 1_000_003), range(50_000_000, 60_000_000, 999_983)])
def test_few_indices_all_over_their_range_are_as_meant(tmp_path: Path, indices: range):
    text = "\n".join(f"1 {index}:1" for index in indices)

    assert read_svmlight(written(tmp_path, text), dense=False).train.features.shape[1] == indices[-1]


def test_a_byte_order_mark_is_no_part_of_the_first_label(tmp_path: Path):
    file = tmp_path / "marked.svm"
    file.write_bytes(codecs.BOM_UTF8 + TEXT.encode())

    marked, plain = read_svmlight(file), read_svmlight(written(tmp_path, TEXT))

    assert marked.train.features.tolist() == plain.train.features.tolist()
    assert read_rows(file, 4)[1].tolist() == read_rows(written(tmp_path, TEXT), 4)[1].tolist()


def test_indices_in_any_order_are_sorted(tmp_path: Path):
    text = "+1 4:4 1:1 # 9:9\n\n-1 2:2\n+1\n-1 3:3 2:2.5 1:1\n"

    rows = read_svmlight(written(tmp_path, text), dense=False).train.features

    assert rows.has_canonical_format
    assert rows.toarray().tolist() == [[1, 0, 0, 4], [0, 2, 0, 0], [0, 0, 0, 0], [1, 2.5, 3, 0]]


def test_a_regression_keeps_its_numbers(tmp_path: Path):
    file = written(tmp_path, "0.5 1:1\n-2 1:2\n")

    labels = read_svmlight(file, classes=False).train.labels

    assert labels.tolist() == [0.5, -2]
    assert labels.dtype == np.float32
    with pytest.raises(DataError, match=r"The label of .*a\.libsvm holds 0\.5; .* classes=False"):
        read_svmlight(file)


@pytest.mark.parametrize(
    ("ending", "packed"), [(".bz2", bz2.compress), (".gz", gzip.compress), (".xz", lzma.compress), ("", bytes)]
)
def test_a_file_in_memory_packed_or_not_is_the_same(tmp_path: Path, ending: str, packed):
    folder = at(f"memory://{uuid.uuid4().hex}")
    folder.mkdir(parents=True)
    (folder / f"a{ending}").write_bytes(packed(TEXT.encode()))

    assert read_svmlight(f"{folder}/a{ending}").digest() == read_svmlight(written(tmp_path, TEXT)).digest()


@pytest.mark.parametrize(
    "text",
    [
        "1 3:1 11:",
        "1 3:1 2:1 3:1\n",
        "1 3:1 2:1 x:1\n",
        "1 3:one\n",
        "3:1 4:1\n",
        "cat 3:1\n",
        "1,2,3\n",
        "<html>404</html>",
        "1 -4:1\n",
        "1 99999999999999999999:1\n",
    ],
)
def test_what_is_not_libsvm_is_refused(tmp_path: Path, text: str):
    with pytest.raises(DataError, match=r"Can't read .*a\.libsvm: .*Expected LIBSVM text: lines like"):
        read_svmlight(written(tmp_path, text))


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a", bytes(range(256)) * 10, r"Can't read .*a: "),
        ("a.gz", gzip.compress(TEXT.encode() * 100)[:-9], r"Can't read .*a\.gz: .*end-of-stream"),
        ("a.gz", gzip.compress(bytes(1_000_000)), r"Can't read .*a\.gz: a line has more than 5,000 bytes"),
    ],
    ids=["no text", "cut", "packed without line ends, so not read to its end"],
)
def test_bytes_that_are_no_whole_text_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, told: str
):
    monkeypatch.setattr(files, "PIECE_BYTES", 1000)
    monkeypatch.setattr(files, "MAX_LINE", 5000)
    (tmp_path / name).write_bytes(content)

    with pytest.raises(DataError, match=told):
        read_svmlight(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, "holds no examples. Expected LIBSVM text") for text in ("", "\n\n", "# nothing\n")),
        ("1\n0\n", "has no example with a feature"),
        *((f"1 1:1\n0 1:{value}\n", ": line 2 ('0 1:.*'): a number is NaN, inf") for value in ("nan", "inf", "1e300")),
        *((f"1 1:1\n{label} 1:1\n", f": line 2 ('{label} 1:1'): a number is NaN, inf") for label in ("nan", "inf")),
        ("1 2000000000:1\n0 1100000000:1\n", "2 examples of 2,000,000,000 features, .*dense=False"),
    ],
)
def test_a_file_that_gives_no_rows_is_refused(tmp_path: Path, text: str, message: str):
    with pytest.raises(DataError, match=r"a\.libsvm.*" + message.replace("(", r"\(").replace(")", r"\)")):
        read_svmlight(written(tmp_path, text))


def test_no_file_is_told(tmp_path: Path):
    with pytest.raises(DataError, match=r"Can't read .*nowhere: No such file"):
        read_svmlight(tmp_path / "nowhere")


def test_sparse_rows_have_no_such_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(svmlight, "MAX_BYTES", 10)

    assert read_svmlight(written(tmp_path, TEXT), dense=False).train.features.shape == (3, 4)
