"""Images of grey levels in PNG files of 8 bits a pixel, without a library for images."""

import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"
HEADER = ">IIBBBBB"  # width, height, bits, colour, compression, filter, interlacing
GREY = (8, 0, 0, 0, 0)


def decode(content: bytes) -> tuple[int, int, bytes]:
    """Width, height and the grey levels, row by row.

    Raises:
        ValueError: it is another kind of file, or is damaged.
    """
    if not content:
        raise ValueError("an empty file")
    if not content.startswith(SIGNATURE):
        raise ValueError("not PNG")
    place, packed, header = len(SIGNATURE), b"", None
    try:
        while place < len(content):
            size, kind = struct.unpack_from(">I4s", content, place)
            body = content[place + 8 : place + 8 + size]
            if kind == b"IHDR":
                header = struct.unpack(HEADER, body)
            elif kind == b"IDAT":
                packed += body
            place += size + 12
        if header is None or header[2:] != GREY:
            raise ValueError("not grey levels of 8 bits")
        width, height = header[:2]
        lines = zlib.decompressobj().decompress(packed, (width + 1) * height)
    except (struct.error, zlib.error):
        raise ValueError("a damaged PNG file") from None
    if len(lines) != (width + 1) * height:
        raise ValueError("a damaged PNG file")
    above = bytearray(width)
    image = bytearray()
    for start in range(0, len(lines), width + 1):
        above = _restore(lines[start], bytearray(lines[start + 1 : start + 1 + width]), above)
        image += above
    return width, height, bytes(image)


def _restore(kind: int, line: bytearray, above: bytearray) -> bytearray:
    """A line without its filter (section 9 of the PNG specification)."""
    if kind > 4:
        raise ValueError("a damaged PNG file")
    left = corner = 0
    for x, up in enumerate(above):
        if kind == 4:
            guess = left + up - corner
            nearest = min((abs(guess - value), n) for n, value in enumerate((left, up, corner)))
            predicted = (left, up, corner)[nearest[1]]
        else:
            predicted = (0, left, up, (left + up) // 2)[kind]
        line[x] = (line[x] + predicted) % 256
        left, corner = line[x], up
    return line


def encode(width: int, height: int, image: bytes) -> bytes:
    """A PNG file of grey levels, width x height, row by row."""
    lines = b"".join(b"\0" + image[y * width : (y + 1) * width] for y in range(height))
    parts = [
        (b"IHDR", struct.pack(HEADER, width, height, *GREY)),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    ]
    return SIGNATURE + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )
