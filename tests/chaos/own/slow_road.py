"""`slow_road.py ADDRESS SECONDS JITTER`: each packet that this network namespace sends from ADDRESS takes so much longer. For
kernels without tc's netem: packets leave by a tun device, wait here, and go out by a raw socket."""

import fcntl
import heapq
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time

_SET_DEVICE = 0x400454CA
"""TUNSETIFF of linux/if_tun.h."""
_TUN, _PLAIN_PACKETS = 0x0001, 0x1000
"""IFF_TUN and IFF_NO_PI of the same."""
_WAY = "eth0"
_MOST = 65535


def main(address: str, delay: float, jitter: float) -> None:
    """Works until it is killed. Says "ready" when packets take the way through here."""
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, _SET_DEVICE, struct.pack("16sH14x", b"slow", _TUN | _PLAIN_PACKETS))
    out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    out.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _WAY.encode())
    network = f"{address.rpartition('.')[0]}.0/24"
    for command in (
        "link set slow up",
        f"route replace {network} dev {_WAY} src {address} metric 9",  # for the raw socket
        f"route replace {network} dev slow src {address}",
    ):
        subprocess.run(["ip", *command.split()], check=True)
    print("ready", flush=True)
    dice = random.Random(0)
    waiting: list[tuple[float, int, bytes]] = []
    count = 0
    while True:
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        if select.select([tun], [], [], pause)[0]:
            count += 1
            heapq.heappush(
                waiting, (time.monotonic() + delay + dice.uniform(-jitter, jitter), count, os.read(tun, _MOST))
            )
        while waiting and waiting[0][0] <= time.monotonic():
            packet = heapq.heappop(waiting)[2]
            if packet[0] >> 4 == 4:  # not the kernel's own IPv6 greetings
                out.sendto(packet, (socket.inet_ntoa(packet[16:20]), 0))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]))
