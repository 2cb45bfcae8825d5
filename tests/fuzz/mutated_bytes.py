"""Bytes changed, cut and repeated at random: for the mutations of foreign files."""


def bytes_mutated(data, draw):
    data = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4, 16))):
        at = draw.randrange(len(data) + 1)
        kind = draw.randrange(5)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = draw.choice((0, 1, 0x7f, 0x80, 0xff, draw.randrange(256)))
        elif kind == 2:
            del data[at:at + draw.randrange(1, 40)]
        elif kind == 3:
            other = draw.randrange(len(data) + 1)
            data[at:at] = data[other:other + draw.randrange(1, 400)]
        elif draw.random() < 0.3:
            del data[at:]
    return bytes(data)
