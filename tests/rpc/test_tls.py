"""Mutual TLS on both transports: whose certificate is good may call, with keys that are read again when they change."""

import _ssl
import base64
import ctypes
import json
import os
import re
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import numpy as np
import pytest

from paceline.base.variables import TLS
from paceline.core.errors import ConfigError, TryAgain, Unauthenticated
from paceline.core.values import Vector
from paceline.rpc import tls
from paceline.rpc.auth import Credentials, read_credentials
from paceline.rpc.enums import phase_of
from paceline.rpc.lane import tls as lane_tls
from paceline.rpc.lane.sockets import PlainSocket
from paceline.rpc.lane.tls import Session, TlsSocket, encrypted_client, encrypted_server
from paceline.rpc.outages import Outage
from paceline.rpc.retries import retried
from paceline.rpc.tls import AUTHORITY, CERTIFICATE, KEY, KeyFolder, key_folder, read_keys
from paceline_k8s.cluster_status import chief_of
from tests.support import kubectl
from tests.support.commands import paceline, python
from tests.support.fake_service import SOON, Served, Service, client, exchange
from tests.support.in_process import Cluster, Pusher, Said, config_of
from tests.support.ports import own_port
from tools.authority import Authority

MANY = 24 << 20
"""Bytes that are more than all buffers on their way."""
Serve = Callable[..., Served]


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def keys(authority: Authority, tmp_path: Path) -> Path:
    """A good folder."""
    return authority.write(tmp_path / "keys")


@pytest.fixture
def serve(serve: Callable[..., Served]) -> Serve:
    """With keys, or without."""
    return lambda tls, token="", threads=8: serve(Service(), token, threads, tls=tls)


def numbers(count: int = 300_000) -> Vector:
    return np.arange(count, dtype=np.float32)


def serves(served: Served, keys: Path) -> None:
    """A good client pushes and gets its answer."""
    found = exchange(client(served.kind, served.address, Credentials(tls=keys)), numbers())
    np.testing.assert_array_equal(found, 2 * numbers())


def refusal(served: Served, keys: Path | None) -> Exception:
    """What a client with these keys gets."""
    with pytest.raises((Unauthenticated, ConfigError, TryAgain)) as found:
        exchange(client(served.kind, served.address, Credentials(tls=keys)), numbers(10))
    return found.value


# what is good
@pytest.mark.parametrize("count", [0, 1, 5000, (1 << 20) + 3])
def test_weights_go_there_and_back(serve: Serve, keys: Path, count: int) -> None:
    sent = numbers(count)
    found = exchange(serve(keys).transport(), sent)
    np.testing.assert_array_equal(found, 2 * sent)


def test_calls_side_by_side_get_each_its_own_answer(serve: Serve, keys: Path) -> None:
    # gRPC refuses calls beyond its threads, and counts one until its thread has ended, behind the answer
    transport = serve(keys, threads=24).transport()
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(lambda place: exchange(transport, numbers(100_000) + place, place + 1), range(18)))
    assert all((one == 2 * (numbers(100_000) + place)).all() for place, one in enumerate(found))


def test_a_certificate_does_not_stand_for_the_token(serve: Serve, keys: Path) -> None:
    served = serve(keys, token="the-right-secret-word")
    with pytest.raises(Unauthenticated, match="is of another run, or of an older secret"):
        exchange(served.transport("another-random-word"), numbers(10))
    np.testing.assert_array_equal(exchange(served.transport(), numbers(10)), 2 * numbers(10))


# who is refused
def test_a_client_with_a_certificate_of_another_ca_is_refused(
    serve: Serve, kind: str, keys: Path, authority: Authority, tmp_path: Path
) -> None:
    served, other = serve(keys), Authority().write(tmp_path / "other")
    (other / AUTHORITY).write_bytes((keys / AUTHORITY).read_bytes() + (other / AUTHORITY).read_bytes())
    error = refusal(served, other)
    if kind == "lane":
        assert isinstance(error, Unauthenticated)
        assert f"The server at {served.address} refused our certificate: unknown ca" in str(error)
    else:  # grpcio does not tell why
        assert "check that both sides have --tls, with certificates of one CA" in str(error)
    serves(served, keys)


def test_a_client_without_a_certificate_is_refused(serve: Serve, kind: str, keys: Path) -> None:
    served = serve(keys)
    if kind == "lane":
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
            raw(served, without_certificate(keys)).recv(1)
    else:
        channel = grpc.secure_channel(served.address, grpc.ssl_channel_credentials((keys / AUTHORITY).read_bytes()))
        with pytest.raises(grpc.RpcError, match="Socket closed"), channel:
            channel.unary_unary("/paceline.v1.ParameterService/Resume")(b"", timeout=SOON)
    serves(served, keys)


def test_a_server_of_another_ca_is_not_trusted(serve: Serve, kind: str, keys: Path, tmp_path: Path) -> None:
    served, other = serve(keys), Authority().write(tmp_path / "other")
    error = refusal(served, other)
    assert isinstance(error, Unauthenticated)
    assert re.search(r"is not good: .*certificate.*\. Every process needs a certificate", str(error))
    serves(served, keys)


def test_a_server_with_another_name_is_not_trusted(
    serve: Serve, kind: str, keys: Path, authority: Authority, tmp_path: Path
) -> None:
    error = refusal(serve(authority.write(tmp_path / "elsewhere", "elsewhere.example")), keys)
    assert isinstance(error, Unauthenticated)
    assert ("Hostname mismatch" if kind == "lane" else "it is made out to other names") in str(error)
    assert "made out to the names it is called by" in str(error)


def test_a_plain_client_is_turned_away_from_a_port_with_tls(serve: Serve, kind: str, keys: Path) -> None:
    served = serve(keys)
    error = refusal(served, None)
    assert isinstance(error, TryAgain)
    assert ("The connection was lost" if kind == "lane" else "check that both sides have --tls") in str(error)
    serves(served, keys)


def test_a_client_with_tls_is_turned_away_from_a_plain_port(serve: Serve, keys: Path) -> None:
    served = serve(None)
    assert "has no --tls, but this process has. Give it to all processes" in str(refusal(served, keys))
    np.testing.assert_array_equal(exchange(served.transport(), numbers(10)), 2 * numbers(10))


def test_nobody_there_is_no_matter_of_keys(kind: str, keys: Path) -> None:
    with pytest.raises(TryAgain, match="refused") as found:
        exchange(client(kind, f"localhost:{own_port()}", Credentials(tls=keys)), numbers(1))
    assert "--tls" not in str(found.value)


# keys that change
def test_renewed_keys_are_taken_for_the_next_connection(serve: Serve, kind: str, keys: Path, tmp_path: Path) -> None:
    """All that is known before is another CA afterwards: a process that still had the old keys would be refused."""
    served = serve(keys)
    transport = served.transport()
    exchange(transport, numbers(10))
    stale = shutil.copytree(keys, tmp_path / "stale")
    Authority().write(keys)
    serves(served, keys)
    assert isinstance(refusal(served, stale), Unauthenticated)
    if kind == "lane":
        transport.close()  # type: ignore[attr-defined]
    again = retried(lambda: exchange(transport, numbers(10)), SOON, Outage("the server", Said()), threading.Event())
    np.testing.assert_array_equal(again, 2 * numbers(10))


def test_new_keys_that_are_no_good_leave_the_old_ones(
    serve: Serve, keys: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    served, good = serve(keys), (keys / KEY).read_bytes()
    (keys / KEY).write_text("half of a")
    serves(served, keys)
    assert "The keys in use stay, for the new ones are no good" in capfd.readouterr().err
    (keys / KEY).write_bytes(good)
    serves(served, keys)


def test_keys_that_are_gone_while_they_are_read_leave_the_old_ones(
    keys: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = KeyFolder(keys)
    before = folder.newest()

    def gone(path: Path) -> None:
        raise FileNotFoundError(path)

    monkeypatch.setattr(tls, "read_keys", gone)
    (keys / KEY).touch()
    assert folder.newest() is before
    assert "The keys in use stay" in capfd.readouterr().err


# the lane's handshake
def raw(served: Served, context: ssl.SSLContext, host: str = "localhost") -> ssl.SSLSocket:
    """A connection after the handshake, as the client sees it."""
    return context.wrap_socket(socket.create_connection(("localhost", served.port), SOON), server_hostname=host)


def stranger(keys: Path) -> ssl.SSLContext:
    """A client with a good certificate that does not know what the lane wants."""
    context = without_certificate(keys)
    context.load_cert_chain(keys / CERTIFICATE, keys / KEY)
    return context


def without_certificate(keys: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(keys / AUTHORITY))
    context.set_alpn_protocols(["h2"])
    return context


@pytest.fixture
def lane(keys: Path) -> Iterator[Served]:
    served = Served("lane", Service(), tls=keys)
    yield served
    served.stop()


def test_the_lane_agrees_on_http2_and_a_new_tls(lane: Served, keys: Path) -> None:
    with raw(lane, stranger(keys)) as found:
        assert (found.selected_alpn_protocol(), found.version()) == ("h2", "TLSv1.3")
    context = stranger(keys)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with raw(lane, context) as found:
        assert (found.selected_alpn_protocol(), found.version()) == ("h2", "TLSv1.2")
        assert found.recv(9)[3] == 4, "SETTINGS come first"


@pytest.mark.parametrize("protocols", [["http/1.1"], []], ids=["another", "none"])
def test_a_peer_that_does_not_offer_http2_is_turned_away(lane: Served, keys: Path, protocols: list[str]) -> None:
    context = ssl.create_default_context(cafile=str(keys / AUTHORITY))
    context.load_cert_chain(keys / CERTIFICATE, keys / KEY)
    if protocols:
        context.set_alpn_protocols(protocols)
    with raw(lane, context) as found:
        assert found.recv(1) == b""
    serves(lane, keys)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_old_tls_is_refused(serve: Serve, kind: str, keys: Path) -> None:
    served, context = serve(keys), stranger(keys)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION" if kind == "lane" else "EOF"):
        raw(served, context)
    serves(served, keys)


def test_a_peer_that_stalls_in_the_handshake_is_let_go_and_keeps_nobody_waiting(
    lane: Served, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = [socket.create_connection(("localhost", lane.port), SOON) for _ in range(3)]
    serves(lane, keys)
    monkeypatch.setattr(lane_tls, "HANDSHAKE", 0.05)
    with socket.create_connection(("localhost", lane.port), SOON) as late:
        late.sendall(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a ClientHello
        assert late.recv(1) == b""
    for one in silent:
        one.close()


def test_a_server_that_stalls_in_the_handshake_is_given_up(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_tls, "HANDSHAKE", 0.05)
    with socket.create_server(("localhost", 0)) as silent, pytest.raises(TryAgain, match="the handshake took more"):
        exchange(client("lane", f"localhost:{silent.getsockname()[1]}", Credentials(tls=keys)), numbers(1))


# the lane's socket
@pytest.fixture
def ends(keys: Path) -> Iterator[tuple[TlsSocket, TlsSocket]]:
    with pair(keys) as found:
        yield found


@contextmanager
def pair(keys: Path, patience: float = SOON) -> Iterator[tuple[TlsSocket, TlsSocket]]:
    """Both ends of a connection, the server's second; the client has read the first byte that it waits for."""
    with socket.create_server(("localhost", 0)) as listening, ThreadPoolExecutor(1) as threads:
        address = f"localhost:{listening.getsockname()[1]}"
        near = socket.create_connection(listening.getsockname())
        opened = threads.submit(lambda: encrypted_client(near, key_folder(keys).newest().client, address, patience))
        far = encrypted_server(listening.accept()[0], key_folder(keys).newest().server, patience)
        far.send([b"!"])
        client_end = opened.result(SOON)
    assert taken(client_end, 1) == b"!"
    yield client_end, far
    for end in (client_end, far):
        end.release()


def taken(end: PlainSocket, count: int, whole: bool = True) -> bytes:
    found, at = bytearray(count), 0
    while at < count:
        some = end.receive(memoryview(found)[at:], whole)
        assert some, f"the end after {at} bytes"
        at += some
    return bytes(found)


def test_both_ends_read_and_write_at_the_same_time(ends: tuple[TlsSocket, TlsSocket]) -> None:
    random = np.random.default_rng(3)
    contents = [random.bytes(MANY), random.bytes(MANY)]

    def write(end: TlsSocket, content: bytes) -> None:
        view, at, sizes = memoryview(content), 0, np.random.default_rng(4)
        while at < MANY:
            pieces = [view[at : at + 9], view[at + 9 : (stop := at + 9 + int(sizes.integers(0, 1 << 20)))]]
            end.send(pieces)
            at = stop

    with ThreadPoolExecutor(4) as threads:
        writing = [threads.submit(write, end, content) for end, content in zip(ends, contents, strict=True)]
        reading = [threads.submit(taken, end, MANY, whole) for end, whole in zip(ends, (True, False), strict=True)]
        found = [one.result(SOON * 2) for one in reading]
        for one in writing:
            one.result(SOON)
    assert found[0] == contents[1]
    assert found[1] == contents[0]


def test_what_did_not_go_at_once_goes_first_later(ends: tuple[TlsSocket, TlsSocket]) -> None:
    near, far = ends
    said, left = bytearray(), b""
    for number in range(10_000):  # until the far side, which does not read, takes no more
        words = bytes([number % 251]) * 5000
        sent = near.try_send(words)
        said += words
        if sent < len(words):
            left = words[sent:]
            break
    assert left, "the socket took everything"
    assert near.try_send(left + b"more") == 0
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(taken, far, len(said) + 7)
        near.send([left, b"and", b"more"])
        assert reading.result(SOON) == bytes(said) + b"andmore"


def test_small_and_large_pieces_come_in_their_order(ends: tuple[TlsSocket, TlsSocket]) -> None:
    near, far = ends
    pieces = [b"", b"a" * 9, b"b" * 16375, b"c", b"d" * 50_000, b"", b"e" * 16384, b"f" * 3]
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(taken, far, sum(map(len, pieces)))
        near.send(pieces)
        assert reading.result(SOON) == b"".join(pieces)


def test_a_socket_says_when_nothing_comes_and_ends_when_it_is_closed(keys: Path) -> None:
    with pair(keys, patience=0.05) as (near, far):

        def silence() -> None:
            raise TimeoutError("nothing came")

        near.on_silence = silence
        with pytest.raises(TimeoutError, match="nothing came"):
            near.receive(memoryview(bytearray(10)))
        far.close()
        near.on_silence = lambda: None
        assert near.receive(memoryview(bytearray(10))) == 0


def test_what_is_paused_in_mid_place_is_handed_out(keys: Path) -> None:
    with pair(keys, patience=0.05) as (near, far):
        far.send([b"some"])
        place = bytearray(100)
        assert near.receive(memoryview(place), whole=True) == 4
        assert place[:4] == b"some"


def test_a_far_side_that_does_not_read_is_given_up(keys: Path) -> None:
    with pair(keys, patience=0.05) as (near, _), pytest.raises(TimeoutError, match="does not read"):
        near.send([bytes(64 << 20)])


def test_nothing_goes_in_plain_text_after_the_end(ends: tuple[TlsSocket, TlsSocket]) -> None:
    near, _ = ends
    near.close()
    with pytest.raises(OSError, match=r".+"):
        near.send([b"a secret"])


def test_a_socket_knows_what_can_be_done(ends: tuple[TlsSocket, TlsSocket]) -> None:
    near, far = ends
    assert not near.wait_for_either(), "there is room to write, and nothing to read"
    far.send([b"0123456789"])
    assert taken(near, 1) == b"0"
    assert near.wait_for_either(), "the rest has been decrypted"
    assert taken(near, 9) == b"123456789"


@pytest.fixture
def bare(keys: Path) -> Iterator[tuple[TlsSocket, socket.socket, Session]]:
    """A client's end, and the server's in its parts, so that a test says what is on the way and when."""
    with socket.create_server(("localhost", 0)) as listening, ThreadPoolExecutor(1) as threads:
        near, address = socket.create_connection(listening.getsockname()), f"localhost:{listening.getsockname()[1]}"
        opened = threads.submit(lambda: encrypted_client(near, key_folder(keys).newest().client, address, SOON))
        far, session = listening.accept()[0], Session(key_folder(keys).newest().server)
        session.shake(far, time.monotonic() + SOON)
        far.sendall(session.encrypt(b"!"))
        end = opened.result(SOON)
    assert taken(end, 1) == b"!"
    yield end, far, session
    end.release()
    far.close()


@pytest.mark.parametrize("whole", [True, False])
def test_records_that_come_torn_are_put_together(bare: tuple[TlsSocket, socket.socket, Session], whole: bool) -> None:
    near, far, session = bare
    content = np.random.default_rng(5).bytes(100_000)
    coded, sizes = session.encrypt(content), np.random.default_rng(6)
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(taken, near, len(content), whole)
        at = 0
        while at < len(coded):
            stop = at + int(sizes.integers(1, 5000))
            far.sendall(coded[at:stop])
            at = stop
        assert reading.result(SOON) == content


def test_a_damaged_record_ends_the_reading(bare: tuple[TlsSocket, socket.socket, Session]) -> None:
    near, far, session = bare
    coded = bytearray(session.encrypt(b"a word"))
    coded[-1] ^= 1
    far.sendall(coded)
    with pytest.raises(OSError, match="BAD_RECORD_MAC"):
        near.receive(memoryview(bytearray(9)))


@pytest.mark.parametrize("how", ["by TLS", "by TCP", "in mid record"])
def test_an_end_in_mid_place_hands_out_what_came(keys: Path, how: str) -> None:
    with openly(keys) as (far, near):
        far.sendall(b"some")
        if how == "by TLS":
            far.setblocking(False)
            with pytest.raises(ssl.SSLWantReadError):  # until the other end says the same
                far.unwrap()
        else:
            if how == "in mid record":
                socket.socket.send(far, b"\x17\x03\x03\x00\x20half")
            socket.socket.shutdown(far, socket.SHUT_WR)
        place = memoryview(bytearray(100))
        assert near.receive(place, whole=True) == 4
        assert near.receive(place, whole=True) == 0
        near.send([b"an answer"])
        if how != "by TLS":
            assert far.recv(20) == b"an answer"


@contextmanager
def openly(keys: Path) -> Iterator[tuple[ssl.SSLSocket, TlsSocket]]:
    """A client by Python's own socket, and the lane's end at the server."""
    with socket.create_server(("localhost", 0)) as listening, ThreadPoolExecutor(1) as threads:
        near = socket.create_connection(listening.getsockname(), SOON)
        opened = threads.submit(lambda: stranger(keys).wrap_socket(near, server_hostname="localhost"))
        end = encrypted_server(listening.accept()[0], key_folder(keys).newest().server, SOON)
        assert end is not None
        with opened.result(SOON) as client_end:
            yield client_end, end
        end.release()


@pytest.mark.parametrize("seed", range(4))
def test_whatever_goes_at_once_or_later_comes_in_its_order(ends: tuple[TlsSocket, TlsSocket], seed: int) -> None:
    near, far = ends
    random, said, left = np.random.default_rng(seed), bytearray(), b""
    with ThreadPoolExecutor(1) as threads:
        reading = None
        for number in range(60):
            words = bytes([number + 1]) * int(random.integers(0, 600_000))
            said += words
            if random.random() < 0.7:
                sent = near.try_send(left + words)
                left = (left + words)[sent:]
            elif reading is not None:
                near.send([left, words])
                left = b""
            else:
                left += words
            if number == 20:  # until then it reads nothing, so that the buffers are full
                reading = threads.submit(until_mark, far)
        near.send([left, b"\0"])
        assert reading.result(SOON * 2) == bytes(said)


def until_mark(end: TlsSocket) -> bytes:
    """What comes before a zero, the last byte."""
    found, place = bytearray(), bytearray(1 << 17)
    while not found.endswith(b"\0"):
        count = end.receive(memoryview(place), whole=len(found) % 2 == 0 and len(found) < 1 << 20)
        assert count, f"the end after {len(found)} bytes"
        found += place[:count]
    return bytes(found[:-1])


def test_new_keys_are_taken_in_mid_stream(keys: Path) -> None:
    with openly(keys) as (far, near):
        for number in range(3):
            ask_for_new_keys(far)
            far.sendall(b"to" + bytes([number]))
            assert taken(near, 3) == b"to" + bytes([number])
            near.send([b"back", bytes([number])])
            assert far.recv(5) == b"back" + bytes([number])


def test_a_peer_that_asks_for_new_keys_without_end_is_let_go(keys: Path) -> None:
    with openly(keys) as (far, near):

        def flood() -> None:
            for _ in range(1000):
                ask_for_new_keys(far)
                far.sendall(b"!")

        with ThreadPoolExecutor(1) as threads:
            flooding = threads.submit(flood)
            with pytest.raises(ConnectionError, match="asks for new keys without end"):
                taken(near, 1000)
            flooding.result(SOON)


def ask_for_new_keys(end: ssl.SSLSocket) -> None:
    """OpenSSL's SSL_key_update with SSL_KEY_UPDATE_REQUESTED, which Python does not offer; it goes with the next sending."""
    openssl = ctypes.CDLL(_ssl.__file__)
    if not hasattr(openssl, "SSL_key_update"):
        pytest.skip("this Python keeps OpenSSL's functions to itself")
    # PySSLSocket: the object's head, the socket, and then SSL*
    place = ctypes.c_void_p.from_address(id(end._sslobj) + object.__basicsize__ + ctypes.sizeof(ctypes.c_void_p))
    assert openssl.SSL_key_update(place, 1) == 1


# folders
TEXTS = {
    "a damaged certificate": (CERTIFICATE, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
    "a damaged ca": (AUTHORITY, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
    "a passphrase": (KEY, "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"),
}


def broken(keys: Path, how: str, authority: Authority) -> None:
    if how == "no folder":
        for file in keys.iterdir():
            file.unlink()
        keys.rmdir()
    elif how.startswith("no "):
        (keys / how[3:]).unlink()
    elif how.endswith(" is no PEM"):
        (keys / how.partition(" ")[0]).write_bytes(bytes(range(256)))
    elif how in TEXTS:
        name, text = TEXTS[how]
        (keys / name).write_text(text)
    elif how == "another key":
        key = (keys / KEY).read_bytes()
        authority.write(keys)
        (keys / KEY).write_bytes(key)
    elif how == "another ca":
        certificate = (keys / AUTHORITY).read_bytes()
        Authority().write(keys)
        (keys / AUTHORITY).write_bytes(certificate)
    elif how == "expired":
        authority.write(keys, until=datetime(2021, 3, 4, tzinfo=UTC))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("no folder", r"There is no folder .*keys\. --tls takes one with ca\.crt, tls\.crt and tls\.key"),
        (f"no {AUTHORITY}", r"Can't read .*ca\.crt: No such file.*takes a folder with ca\.crt, tls\.crt and tls\.key"),
        (f"no {CERTIFICATE}", r"Can't read .*tls\.crt: No such file"),
        (f"no {KEY}", r"Can't read .*tls\.key: No such file"),
        (f"{AUTHORITY} is no PEM", r"ca\.crt is not in PEM format: it has no 'BEGIN CERTIFICATE'"),
        (f"{CERTIFICATE} is no PEM", r"tls\.crt is not in PEM format"),
        (f"{KEY} is no PEM", r"tls\.key is not in PEM format: it has no 'PRIVATE KEY'"),
        ("a damaged certificate", r"Can't read .*tls\.crt or .*tls\.key"),
        ("a damaged ca", r"ca\.crt holds no readable certificate"),
        ("a passphrase", r"tls\.key has a passphrase\. Write the key without one"),
        ("another key", r"The key .*tls\.key does not fit the certificate .*tls\.crt"),
        ("another ca", r"tls\.crt is not valid for .*ca\.crt: .*signed it, for use by both servers and clients"),
        ("expired", r"certificate has expired\. The first is valid from .* until Mar  4 00:00:00 2021 GMT\. Renew it"),
    ],
)
def test_a_folder_that_can_not_be_used_says_why(keys: Path, authority: Authority, how: str, words: str) -> None:
    broken(keys, how, authority)
    with pytest.raises(ConfigError, match=words):
        read_keys(keys)
    with pytest.raises(ConfigError, match=words):
        read_credentials(None, keys)


def test_a_certificate_of_tomorrow_is_not_good_yet_and_one_of_today_is(keys: Path, authority: Authority) -> None:
    authority.write(keys, until=datetime.now(UTC) + timedelta(hours=1))
    assert read_keys(keys).certificate == (keys / CERTIFICATE).read_bytes()


# whole servers
@pytest.mark.parametrize("transport", ["grpc", "lane"])
def test_a_run_in_lock_step_has_the_same_bits_with_and_without_tls(keys: Path, tmp_path: Path, transport: str) -> None:
    models = []
    config = config_of("bsp", workers=1, servers=2, epochs=100, transport=transport)
    for name, shown in (("plain", None), ("tls", keys)):
        with closing(Cluster(config, tmp_path / name, Credentials("the-run-secret-word", shown))) as cluster:
            cluster.evaluator_ready()
            pusher = Pusher(cluster).join().sit()
            for step in range(20):
                pusher.push(0.1 * step)
            pusher.client.pull(pusher.model)
            models.append(pusher.model.copy())
    assert np.abs(models[0]).sum() > 0
    assert models[0].tobytes() == models[1].tobytes()


# whole processes
def test_all_processes_of_a_run_find_the_keys_by_one_variable(keys: Path, tmp_path: Path) -> None:
    rows = [f"{1 if row % 2 else -1:+d} {1 + row % 2}:1 {3 + row % 40}:0.1" for row in range(400)]
    (tmp_path / "rows.txt").write_text("\n".join(rows) + "\n")
    settings = ("--set", "transport=lane", "--set", "data.source=server")  # servers, lane, and shards that are streamed
    run = ("run", "svm", "-w", "2", "-s", "2", "--epochs", "2", "--data", "rows.txt", "--run", "short", *settings)

    done = python("-m", "paceline.cli", *run, cwd=tmp_path, PACELINE_TLS=os.path.relpath(keys, tmp_path))

    assert done.returncode == 0, done.stdout + done.stderr
    last = "test accuracy 1.0000, f1 1.0000, majority 0.5000, precision 1.0000, recall 1.0000"
    assert done.stdout.splitlines()[-1] == last
    assert json.loads((tmp_path / "runs/short/run.json").read_text())["tls"] == str(keys.resolve())


def test_a_run_with_keys_that_are_no_good_does_not_begin(keys: Path, tmp_path: Path) -> None:
    (keys / KEY).unlink()
    done = paceline("run", "svm", "--tls", str(keys), cwd=tmp_path)
    assert done.returncode == 78
    assert f"Can't read {keys / KEY}: No such file or directory" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_chief_elsewhere_is_asked_by_tls(keys: Path, tmp_path: Path) -> None:
    with closing(Cluster(config_of("asp", workers=1, epochs=100), tmp_path / "run", Credentials(tls=keys))) as cluster:
        asked = ("status", "--json", "--chief", cluster.addresses[0])
        assert json.loads(paceline(*asked, "--tls", str(keys), cwd=tmp_path).stdout)["phase"] == "waiting"
        plain = paceline(*asked, cwd=tmp_path)
        assert (plain.returncode, "If it uses TLS, add --tls." in plain.stderr) == (69, True)


class OneCluster(kubectl.Cluster):
    """What a run with the component `tls` has, and the way to its chief."""

    def __init__(self, address: str, keys: Path, env: list[str]) -> None:
        super().__init__(run_name="mine")
        containers = [{"env": [{"name": name} for name in env]}]
        files = {"token": b"the-right-secret-word"}, {file.name: file.read_bytes() for file in keys.iterdir()}
        token, certificate = ({"data": {name: base64.b64encode(one[name]).decode() for name in one}} for one in files)
        self.there = {
            "statefulset/mine-paceline-server": {"spec": {"template": {"spec": {"containers": containers}}}},
            "secret/mine-paceline-token": token,
            "secret/mine-paceline-tls": certificate,
        }
        self._address = address

    @contextmanager
    def forwarded(self, pod: str, port: int) -> Iterator[str]:
        yield self._address


def test_a_run_on_kubernetes_is_asked_with_the_keys_of_its_secret(keys: Path, tmp_path: Path) -> None:
    shown = Credentials("the-right-secret-word", keys)
    with closing(Cluster(config_of("asp", workers=1, epochs=100), tmp_path / "run", shown)) as cluster:
        address = cluster.addresses[0].replace("localhost", "127.0.0.1")
        with chief_of(OneCluster(address, keys, ["OMP_NUM_THREADS", TLS])) as chief:
            status = chief.status()
            assert phase_of(status) == "waiting"
        with chief_of(OneCluster(address, keys, ["OMP_NUM_THREADS"])) as chief:
            assert chief.status() is None, "by plain text nobody answers"
