"""Checks a capture of RoCEv2 packets with tshark and scapy: check_capture.py CAPTURE

tshark (of Wireshark) reports malformed packets, and scapy's contrib/roce computes every ICRC again. Prints the number of packets of
each opcode and address. Exits with 1 if one of the two rejects a packet.
"""

import collections
import os
import subprocess
import sys

from scapy.contrib.roce import BTH
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether
from scapy.utils import RawPcapReader

# Without these options tshark guesses the protocol of the payload: any SEND may be RPC over RDMA, and 08 00 00 00 the beginning of IPv4
# in an Ethernet frame. It then reports valid packets as malformed.
TSHARK = ["tshark", "-n", "--disable-heuristic", "rpcrdma_infiniband", "--disable-heuristic", "eth_over_ib"]


def tshark(capture, *arguments):
    try:
        done = subprocess.run([*TSHARK, "-r", capture, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except FileNotFoundError:
        sys.exit("make check-capture needs tshark: on Debian and Ubuntu, apt-get install tshark")
    if done.returncode != 0:
        sys.exit(f"tshark: {done.stderr.strip()}")
    return done.stdout.splitlines()


def main(capture):
    if not os.path.exists(capture):
        sys.exit(f"{capture} does not exist: make test-rxe writes it (TestRxeCapture in integration/roce/together)")
    # One line for each packet: the malformed part, the detected protocols, and the opcode.
    fields = ["_ws.malformed", "frame.protocols", "infiniband.bth.opcode"]
    lines = tshark(capture, "-T", "fields", "-E", "separator=|", *[option for f in fields for option in ("-e", f)])
    malformed = not_roce = 0
    for line in lines:
        part, protocols, opcode = line.split("|")
        malformed += part != ""
        not_roce += opcode == "" or "infiniband" not in protocols
    print(f"tshark: {len(lines)} packets, {malformed} malformed, {not_roce} not detected as RoCEv2")

    opcodes = collections.Counter()
    matching = total = 0
    for data, _ in RawPcapReader(capture):
        packet = Ether(data)
        total += 1
        if BTH not in packet:
            print(f"scapy: packet {total} is not RoCEv2: {packet.summary()}")
            continue
        bth = packet[BTH]
        received = bth.icrc.to_bytes(4, "big")
        computed = bth.compute_icrc(b"")
        if received == computed:
            matching += 1
        elif total - matching < 10:
            print(f"scapy: packet {total}: ICRC {received.hex()}, computed {computed.hex()}: {packet.summary()}")
        source = packet[IP].src if IP in packet else packet["IPv6"].src
        opcodes[source, bth.sprintf("%opcode%")] += 1
    for (source, opcode), n in sorted(opcodes.items()):
        print(f"  {n:7} {opcode} from {source}")
    print(f"scapy: {matching} of {total} ICRCs match")
    return int(malformed + not_roce > 0 or matching != total or total == 0 or total != len(lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
