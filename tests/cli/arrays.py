"""Arrays in files, with nothing but the standard library, for the tests of the command. An array is (dtype, shape, values)."""
import io
import json
import struct
import zipfile
import zlib

CODES = {"f16": "e", "f32": "f", "f64": "d", "i32": "i", "i64": "q", "u8": "B", "bool": "B"}
NPY = {"f16": "f2", "f32": "f4", "f64": "f8", "i32": "i4", "i64": "i8", "u8": "u1", "bool": "b1", "bf16": "V2"}
SAFETENSORS = {"f16": "F16", "f32": "F32", "f64": "F64", "i32": "I32", "i64": "I64", "u8": "U8", "bool": "BOOL", "bf16": "BF16"}
BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "i32": 4, "i64": 8, "u8": 1, "bool": 1}


def count(shape):
    n = 1
    for s in shape:
        n *= s
    return n


def to_bf16(v):
    word = struct.unpack("<I", struct.pack("<f", v))[0]
    return ((word + 0x7FFF + ((word >> 16) & 1)) >> 16) & 0xFFFF


def pack(dtype, values, order="<"):
    if dtype == "bf16":
        return struct.pack("%s%dH" % (order, len(values)), *[to_bf16(v) for v in values])
    return struct.pack("%s%d%s" % (order, len(values), CODES[dtype]), *values)


def unpack(dtype, data):
    n = len(data) // BYTES[dtype]
    if dtype == "bf16":
        words = struct.unpack("<%dH" % n, data)
        return [struct.unpack("<f", struct.pack("<I", w << 16))[0] for w in words]
    return list(struct.unpack("<%d%s" % (n, CODES[dtype]), data))


def npy_header(text, version=1):
    length = "<H" if version == 1 else "<I"
    text = text.encode("latin1" if version < 3 else "utf8")
    start = 8 + struct.calcsize(length)
    text += b" " * (-(start + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack(length, len(text)) + text


def npy(dtype, shape, values, order="<", version=1, fortran=False):
    mark = order if BYTES[dtype] > 1 else "|"
    text = "{'descr': '%s%s', 'fortran_order': %s, 'shape': %s, }" % (mark, NPY[dtype], fortran, tuple(shape))
    if fortran:
        values = [values[i] for i in fortran_indices(shape)]
    return npy_header(text, version) + pack(dtype, values, order)


def fortran_indices(shape):
    """The C positions of the elements in Fortran order."""
    result = []
    for k in range(count(shape)):
        position, stride = 0, count(shape)
        for size in shape:
            stride //= size
            position += k % size * stride
            k //= size
        result.append(position)
    return result


def read_npy(data):
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:16]
    length = struct.unpack("<H", data[8:10])[0]
    assert (10 + length) % 64 == 0
    header = eval(data[10:10 + length].decode(), {"__builtins__": {}}, {"True": True, "False": False})
    dtype = {v: k for k, v in NPY.items()}[header["descr"][1:]]
    values = unpack(dtype, data[10 + length:])
    assert len(values) == count(header["shape"]) and not header["fortran_order"]
    return dtype, header["shape"], values


class Stream(io.RawIOBase):
    """Cannot seek: sizes and sums in a zip written to it follow the data."""
    def __init__(self):
        self.data = b""

    def writable(self):
        return True

    def write(self, part):
        self.data += bytes(part)
        return len(part)

    def getvalue(self):
        return self.data


def npz(arrays, method=zipfile.ZIP_STORED, stream=False):
    out = Stream() if stream else io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        for name, (dtype, shape, values) in arrays.items():
            with z.open(name + ".npy", "w", force_zip64=len(arrays) > 1) as f:  # as numpy.savez does
                f.write(npy(dtype, shape, values))
    return out.getvalue()


def read_npz(data):
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        assert z.testzip() is None
        return {n[:-4]: read_npy(z.read(n)) for n in z.namelist()}


def safetensors_header(header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def safetensors(arrays, metadata=None):
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, values) in arrays.items():
        part = pack(dtype, values)
        header[name] = {"dtype": SAFETENSORS[dtype], "shape": list(shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    return safetensors_header(header, data)


def read_safetensors(data):
    length = struct.unpack("<Q", data[:8])[0]
    assert length % 8 == 0
    header, body, result = json.loads(data[8:8 + length]), data[8 + length:], {}
    names = {v: k for k, v in SAFETENSORS.items()}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        dtype = names[entry["dtype"]]
        result[name] = (dtype, tuple(entry["shape"]), unpack(dtype, body[begin:end]))
        assert len(result[name][2]) == count(entry["shape"])
    return result


def png(width, height, depth, color, pixels, *chunks, interlaced=False):
    """A picture: rows of bytes as PNG has them, which may be too few; chunks: (kind, bytes) before the pixels. interlaced: not of bits."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    bits = depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
    size = (width * bits + 7) // 8
    rows = [pixels[at:at + size] for at in range(0, len(pixels), size)]
    if interlaced:  # the pixels of seven small pictures: (x, y), and how far they are apart
        passes = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
        each = bits // 8
        rows = [b"".join(row[c * each:(c + 1) * each] for c in range(x, width, dx)) for x, y, dx, dy in passes for row in rows[y::dy]]
    data = zlib.compress(b"".join(b"\0" + row for row in rows if row))
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*c) for c in ((b"IHDR", header), *chunks, (b"IDAT", data), (b"IEND", b"")))


def text(shape, values, separator=","):
    columns = shape[-1]
    rows = [values[i:i + columns] for i in range(0, len(values), columns)]
    return "".join(separator.join(repr(v) for v in row) + "\n" for row in rows).encode()


def read_text(data, separator=","):
    return [[float(f) for f in line.split(separator)] for line in data.decode().splitlines()]
