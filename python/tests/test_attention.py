"""Attention: its functions against plain Python, settings by name, gradients against differences, and what they refuse."""
import array
import math
import unittest

import libsoftmax


def block(values, shape, code="d"):
    return memoryview(array.array(code, values)).cast("B").cast(code, shape)


def some(shape, step):
    return block([math.sin(step * i) for i in range(math.prod(shape))], shape)


def flat(x):
    return memoryview(x).cast("B").cast(x.format)


def part(x, at):
    """The keys of a tensor [1, 1, keys, size] from `at` on, 1024 at most."""
    size = x.shape[3]
    values = flat(x).tolist()[at * size:(at + 1024) * size]
    return block(values, (1, 1, len(values) // size, size))


def plain(q, k, v, scale, sees):
    """softmax of the scores, head by head."""
    q, k, v = q.tolist(), k.tolist(), v.tolist()
    for h in range(len(q[0])):
        for i, row in enumerate(q[0][h]):
            own = h * len(k[0]) // len(q[0])
            e = [math.exp(scale * sum(map(lambda a, b: a * b, row, key))) if sees(i, j) else 0 for j, key in enumerate(k[0][own])]
            for x in range(len(v[0][0][0])):
                yield sum(w * value[x] for w, value in zip(e, v[0][own])) / sum(e)


class Attention(unittest.TestCase):
    q, k, v = some((1, 2, 3, 4), 1.3), some((1, 1, 5, 4), 2.1), some((1, 1, 5, 2), 0.7)

    def test_values(self):
        for settings, scale, sees in (({}, 0.5, lambda i, j: True), ({"causal": True, "scale": 2.0}, 2.0, lambda i, j: j <= i + 2),
                                      ({"causal": True, "query_start": 0, "window_left": 1}, 0.5, lambda i, j: i - 1 <= j <= i)):
            o = libsoftmax.attention(self.q, self.k, self.v, **settings)
            self.assertEqual(o.shape, (1, 2, 3, 2))
            for got, want in zip(flat(o), plain(self.q, self.k, self.v, scale, sees)):
                self.assertAlmostEqual(got, want, 14)

    def test_every_kind(self):
        for kind in libsoftmax.ATTENTION_KINDS:
            o, lse = libsoftmax.attention(self.q, self.k, self.v, weights=kind, causal=True, return_lse=True)
            w = libsoftmax.attention_scores(self.q, self.k, weights=kind, causal=True)
            self.assertEqual((w.shape, lse.shape), ((1, 2, 3, 5), (1, 2, 3)))
            for a, b in zip(flat(o), flat(libsoftmax.attention_apply(w, self.v, causal=True))):
                self.assertAlmostEqual(a, b, 13, kind)

    def test_softplus_of_faint_scores(self):
        """A sum of softplus so small that n over it is beyond float: the one key that is seen has it all."""
        zeros, keys = [0.0] * 64, [-100.0] * 16
        keys[5] = -86.5
        q, k = block(zeros[:4], (1, 1, 1, 4), "f"), block(zeros, (1, 1, 16, 4), "f")
        v, bias = block(list(range(16)), (1, 1, 16, 1), "f"), block(keys, (1, 1, 1, 16), "f")
        o, lse = libsoftmax.attention(q, k, v, weights="lssar", bias=bias, return_lse=True)[:2]
        self.assertEqual(flat(o).tolist(), [5])
        do = block([1], (1, 1, 1, 1), "f")
        dv = libsoftmax.attention_backward(do, q=q, k=k, v=v, o=o, lse=lse, weights="lssar", bias=bias)[2]
        for i, x in enumerate(flat(dv)):
            self.assertAlmostEqual(x, float(i == 5), places=5)

    def test_defaults_are_those_of_the_command(self):
        for kind, params in (("sigmoid", {"shift": -math.log(5)}), ("taylor", {"norm": "l1", "terms": 3}), ("clipped", {"low": -0.03, "high": 1}), ("exp", {"norm": "count", "most": 5})):
            self.assertEqual(flat(libsoftmax.attention(self.q, self.k, self.v, weights=kind)),
                             flat(libsoftmax.attention(self.q, self.k, self.v, weights=kind, params=params)), kind)

    def test_the_table(self):
        kinds = libsoftmax.ATTENTION_KINDS
        self.assertEqual([kind.id for kind in kinds.values()], list(range(len(kinds))))
        for name, kind in kinds.items():
            self.assertEqual(name, kind.name)
            self.assertIn(name, libsoftmax.attention.__doc__)
            self.assertEqual(kind.backward, name in libsoftmax.attention_backward.__doc__.split("For\n")[1].split(";")[0])
            given = {p.name: None if math.isnan(p.default) else p.default for p in kind.params}
            self.assertEqual(flat(libsoftmax.attention(self.q, self.k, self.v, weights=name, params=given)),
                             flat(libsoftmax.attention(self.q, self.k, self.v, weights=name)))
        self.assertEqual(kinds["relu"].params[0].choices, ("none", "count", "l1", "clamp"))
        with self.assertRaisesRegex(ValueError, "terms of taylor"):
            libsoftmax.attention(self.q, self.k, self.v, weights="taylor", params={"terms": 0.5})
        with self.assertRaisesRegex(ValueError, "'taylor' has no 'degree', only 'norm', 'terms'"):
            libsoftmax.attention(self.q, self.k, self.v, weights="taylor", params={"degree": 2})
        with self.assertRaisesRegex(ValueError, "norm: 'l3' is not one of 'none'"):
            libsoftmax.attention(self.q, self.k, self.v, weights="relu", params={"norm": "l3"})

    def test_the_table_of_steps(self):
        steps = libsoftmax.SAMPLING_STEPS
        self.assertEqual([step.id for step in steps.values()], list(range(len(steps))))
        self.assertEqual([p.name for p in steps["dry"].params if p.required], ["multiplier"])
        self.assertTrue(steps["dry"].text and steps["bias"].values and steps["ban"].tokens and not steps["top_p"].tokens)

    def test_params(self):
        plain = libsoftmax.attention(self.q, self.k, self.v)
        self.assertEqual(flat(libsoftmax.attention(self.q, self.k, self.v, weights="softmax_n", params={"n": 0})), flat(plain))
        self.assertNotEqual(flat(libsoftmax.attention(self.q, self.k, self.v, weights="softmax_n")), flat(plain))

    def test_gradients(self):
        do = some((1, 2, 3, 2), 0.9)
        o, lse = libsoftmax.attention(self.q, self.k, self.v, softcap=2.0, return_lse=True)
        found = libsoftmax.attention_backward(do, q=self.q, k=self.k, v=self.v, o=o, lse=lse, softcap=2.0)

        def loss(arrays):
            return sum(a * b for a, b in zip(flat(do), flat(libsoftmax.attention(*arrays, softcap=2.0))))
        for which, gradient in enumerate(found):
            for i in range(0, len(flat(gradient)), 3):
                sides = []
                for step in (1e-6, -1e-6):
                    arrays = [block(flat(x).tolist(), x.shape) for x in (self.q, self.k, self.v)]
                    flat(arrays[which])[i] += step
                    sides.append(loss(arrays))
                self.assertAlmostEqual(flat(gradient)[i], (sides[0] - sides[1]) / 2e-6, 8)
        only = libsoftmax.attention_backward(do, q=self.q, k=self.k, v=self.v, o=o, lse=lse, softcap=2.0, wanted="k")
        self.assertEqual(flat(only), flat(found[1]))

    def test_gradients_of_what_is_added(self):
        do, bias, slopes = some((1, 2, 3, 2), 0.9), some((3, 5), 1.7), block([0.3, 0.2], (2,))
        sinks = block([0.5, -1], (1, 2))

        def run(**given):
            return libsoftmax.attention(self.q, self.k, self.v, causal=True, return_lse=True, **given)
        given = {"bias": bias, "slopes": slopes, "sinks": sinks}
        o, lse = run(**given)
        found = libsoftmax.attention_backward(do, q=self.q, k=self.k, v=self.v, o=o, lse=lse, causal=True, wanted=tuple(given), **given)
        for (name, value), gradient in zip(given.items(), found):
            self.assertEqual(gradient.shape, value.shape)
            for i in range(len(flat(value))):
                sides = []
                for step in (1e-6, -1e-6):
                    other = block(flat(value).tolist(), value.shape)
                    flat(other)[i] += step
                    sides.append(sum(a * b for a, b in zip(flat(do), flat(run(**{**given, name: other}).o))))
                self.assertAlmostEqual(flat(gradient)[i], (sides[0] - sides[1]) / 2e-6, 8, name)
        with self.assertRaisesRegex(TypeError, "bias is missing"):
            libsoftmax.attention_backward(do, q=self.q, k=self.k, v=self.v, o=o, lse=lse, wanted="bias")

    def test_operators_on_rows(self):
        q, k = block([1, 0.5], (1, 1, 1, 2)), block([1, 0, 0, 1, -1, 1], (1, 1, 3, 2))
        v, do = block([1, 0, 0, 1, 1, 1], (1, 1, 3, 2)), block([1, -2], (1, 1, 1, 2))
        for name, params, want in (("entmax15", None, (0.648920936541, 0.408183746163)), ("entmax", {"alpha": 2}, (0.676776695297, 0.323223304703)),
                                   ("sparsemax", {}, (0.676776695297, 0.323223304703))):
            for got, expected in zip(flat(libsoftmax.attention(q, k, v, weights=name, params=params)), want):
                self.assertAlmostEqual(got, expected, 10)
        dv = libsoftmax.attention_backward(do, q=q, k=k, v=v, weights="sparsemax", wanted="v")
        for got, expected in zip(flat(dv), (0.676776695297, -1.353553390593, 0.323223304703, -0.646446609407, 0, 0)):
            self.assertAlmostEqual(got, expected, 10)
        with self.assertRaisesRegex(ValueError, "no lse"):
            libsoftmax.attention(q, k, v, weights="sparsemax", return_lse=True)
        with self.assertRaisesRegex(ValueError, "op is logsumexp"):
            libsoftmax.attention(q, k, v, weights="logsumexp")

    def test_gradients_of_other_attention(self):
        do, r, u = some((1, 2, 3, 2), 0.9), some((1, 2, 3, 4), 0.4), some((2, 4), 1.9)
        for name, given in (("parallax", {"r": r}), ("local_linear", {"ridge": 0.2}), ("additive", {"u": u})):
            forward, backward = getattr(libsoftmax, "attention_" + name), getattr(libsoftmax, "attention_%s_backward" % name)
            arrays = {"q": self.q, "k": self.k, "v": self.v, **{key: value for key, value in given.items() if key != "ridge"}}
            settings = {"causal": True, **{key: value for key, value in given.items() if key == "ridge"}}
            found = backward(do, **arrays, **settings)
            self.assertEqual(len(found), len(arrays))
            for (which, value), gradient in zip(arrays.items(), found):
                self.assertEqual(gradient.shape, (1, 2, 4) if which == "u" else value.shape)
                for i in range(0, len(flat(value)), 3):
                    sides = []
                    for step in (1e-6, -1e-6):
                        other = block(flat(value).tolist(), value.shape)
                        flat(other)[i] += step
                        sides.append(sum(a * b for a, b in zip(flat(do), flat(forward(**{**arrays, which: other}, **settings)))))
                    self.assertAlmostEqual(flat(gradient)[i], (sides[0] - sides[1]) / 2e-6, 8, (name, which))
            self.assertEqual(flat(backward(do, **arrays, **settings, wanted="k")), flat(found[1]))
            with self.assertRaisesRegex(ValueError, "wanted: 'x' is not one of 'q'"):
                backward(do, **arrays, **settings, wanted="x")

    def test_values_of_other_attention(self):
        q, k = block([1, 0.5], (1, 1, 1, 2)), block([1, 0, 0, 1, -1, 1], (1, 1, 3, 2))
        v, r = block([1, 0, 0, 1, 1, 1], (1, 1, 3, 2)), block([0.2, -0.1], (1, 1, 1, 2))
        e = [math.exp(z) for z in (math.tanh(2) - math.tanh(0.5), math.tanh(1) - math.tanh(1.5), -math.tanh(1.5))]
        for got, want in ((libsoftmax.attention_parallax(q, k, v, r), (0.618588046128, 0.603278632461)),
                          (libsoftmax.attention_local_linear(q, k, v, ridge=0.1), (0.565098966166, 0.316044891551)),
                          (libsoftmax.attention_additive(q, k, v, block([1, -1], (2,))), ((e[0] + e[2]) / sum(e), (e[1] + e[2]) / sum(e)))):
            for a, b in zip(flat(got), want):
                self.assertAlmostEqual(a, b, 10)
        with self.assertRaisesRegex(ValueError, "ridge is -1"):
            libsoftmax.attention_local_linear(q, k, v, ridge=-1)
        with self.assertRaisesRegex(TypeError, "r is missing"):
            libsoftmax.attention_parallax(q, k, v, None)

    def test_states(self):
        k, v = some((1, 1, 1030, 4), 2.1), some((1, 1, 1030, 2), 0.7)
        want = libsoftmax.attention(self.q, k, v, causal=True, return_lse=True)
        pieces = [libsoftmax.attention_states(self.q, part(k, at), part(v, at), causal=True, key_start=at,
                                              query_start=1027) for at in (0, 1024)]
        self.assertEqual(pieces[0].shape, (1, 2, 3, 1, 144))
        got = libsoftmax.attention_merge(pieces, 2, return_lse=True)
        self.assertEqual([flat(x) for x in got], [flat(x) for x in want])
        self.assertEqual(flat(libsoftmax.attention_merge(pieces, 2)), flat(want.o))
        for states, message in (([], "states: 0 of them, not 1 to 24"), ([self.q], "states: ndim is 4, not 5"), (pieces, "size|shape")):
            with self.assertRaisesRegex(ValueError, message):
                libsoftmax.attention_merge(states, 2 if states is not pieces else 200)
        with self.assertRaisesRegex(ValueError, "weights: 'sparsemax' is not one of"):
            libsoftmax.attention_states(self.q, k, v, weights="sparsemax")

    def test_states_of_pages(self):
        """A cache of pages in any order has the states of its keys in their order."""
        page, keys = 64, 1088
        k, v = some((1, 1, keys, 4), 2.1), some((1, 1, keys, 2), 0.7)
        order = [(7 * i + 3) % 17 for i in range(17)]  # page i of the sequence lies there

        def paged(x):
            values, size = flat(x).tolist(), page * x.shape[3]
            at = sorted(range(17), key=order.__getitem__)
            return block([a for i in at for a in values[i * size:(i + 1) * size]], (17, 1, page, x.shape[3]))
        table, lengths = block(order, (1, 17), "i"), block([keys], (1,), "i")
        found = libsoftmax.attention_states(self.q, paged(k), paged(v), block_table=table, lengths=lengths)
        wanted = libsoftmax.attention_states(self.q, k, v)
        self.assertEqual((found.shape, flat(found)), ((1, 2, 3, 2, 144), flat(wanted)))

    def test_operators_have_no_mass(self):
        lse = libsoftmax.attention(self.q, self.k, self.v, return_lse=True).lse
        with self.assertRaisesRegex(ValueError, "weights: 'sparsemax' is not one of"):
            libsoftmax.attention_column_mass(self.q, self.k, lse, weights="sparsemax")

    def test_wrong_values_are_named(self):
        q, k, v, mass = self.q, self.k, self.v, some((1, 1, 5), 1)
        states = libsoftmax.attention_states(q, k, v)
        for error, message, call in (
                (TypeError, "attention: scale: 'x' is not a number", lambda: libsoftmax.attention(q, k, v, scale="x")),
                (TypeError, "attention: causal: 'yes' is not a whole number", lambda: libsoftmax.attention(q, k, v, causal="yes")),
                (ValueError, "attention: seed: 1180591620717411303424 is not a whole number of 64 bits", lambda: libsoftmax.attention(q, k, v, seed=1 << 70)),
                (ValueError, "options.window_left is -2", lambda: libsoftmax.attention(q, k, v, window_left=-2)),
                (TypeError, "attention_local_linear: ridge: 'x' is not a number", lambda: libsoftmax.attention_local_linear(q, k, v, ridge="x")),
                (TypeError, "attention_merge: states: int is not a list", lambda: libsoftmax.attention_merge(3, 2)),
                (ValueError, "attention_merge: size: -1 is not at least 1", lambda: libsoftmax.attention_merge([states], -1)),
                (ValueError, "attention_select: kernel: \\(\\) has no number", lambda: libsoftmax.attention_select(mass, 2, kernel=())),
                (TypeError, "attention_select: kernels: \\(1, 'x'\\) is not whole", lambda: libsoftmax.attention_select(mass, 2, kernel=[1, "x"]))):
            with self.assertRaisesRegex(error, message):
                call()

    def test_column_mass(self):
        lse = libsoftmax.attention(self.q, self.k, self.v, causal=True, return_lse=True).lse
        mass = libsoftmax.attention_column_mass(self.q, self.k, lse, causal=True)
        w = libsoftmax.attention_scores(self.q, self.k, causal=True).tolist()[0]
        self.assertEqual(mass.shape, (1, 1, 5))
        for j, got in enumerate(flat(mass)):
            self.assertAlmostEqual(got, sum(row[j] for head in w for row in head), 13)

    def test_select(self):
        mass = block([3, 1, 4, 1, 5, 9, 2, 6], (1, 2, 4))
        found = libsoftmax.attention_select(mass, 2)
        self.assertEqual(found.keys.tolist(), [[[0, 2], [1, 3]]])
        self.assertEqual(found.kept.tolist(), [[2, 2]])
        keys, kept = libsoftmax.attention_select(mass, 3, last=1, kernel=3, pool="max", shared=True)
        self.assertEqual((keys.tolist(), kept.tolist()), ([[[0, 1, 3]]], [[3]]))
        budgets = memoryview(array.array("i", [1, 0]))
        self.assertEqual(libsoftmax.attention_select(mass, 2, budgets=budgets).keys.tolist(), [[[2, -1], [-1, -1]]])
        with self.assertRaisesRegex(ValueError, "attention_select: options.kernel is 2, not an odd number"):
            libsoftmax.attention_select(mass, 2, kernel=2)
        for kernel, want in (((1, 3), [0, 1]), ((3, 1), [1, 4])):
            self.assertEqual(libsoftmax.attention_select(block([3, 5, 2, 0, 4], (1, 1, 5)), 2, kernel=kernel).keys.tolist(), [[want]])
        with self.assertRaisesRegex(ValueError, "attention_select: options.kernels is 4, not an odd number"):
            libsoftmax.attention_select(mass, 2, kernel=(3, 4))
        with self.assertRaisesRegex(ValueError, "attention_select: kernels: more than 64 of them"):
            libsoftmax.attention_select(mass, 2, kernel=(1,) * 65)
        with self.assertRaisesRegex(ValueError, "attention_select: pool: 'min' is not one of 'mean', 'max'"):
            libsoftmax.attention_select(mass, 2, pool="min")
        with self.assertRaisesRegex(ValueError, "attention_select: mass: ndim is 1, not 2..6"):
            libsoftmax.attention_select(array.array("d", [1]), 2)
        with self.assertRaisesRegex(ValueError, "attention_select: keep: -1 is not at least 0"):
            libsoftmax.attention_select(mass, -1)

    def test_dropout(self):
        given = {"dropout": 0.5, "seed": 3, "causal": True}
        o, lse = libsoftmax.attention(self.q, self.k, self.v, return_lse=True, **given)
        whole = libsoftmax.attention(self.q, self.k, self.v, return_lse=True, causal=True)
        w, kept = (libsoftmax.attention_scores(self.q, self.k, **g) for g in ({"causal": True}, given))
        self.assertEqual(flat(lse), flat(whole.lse))
        for a, b in zip(flat(o), flat(libsoftmax.attention_apply(kept, self.v, causal=True))):
            self.assertAlmostEqual(a, b, 13)
        dropped = [b == 0 for a, b in zip(flat(w), flat(kept)) if a]
        self.assertTrue(any(dropped) and not all(dropped))
        for a, b in zip(flat(w), flat(kept)):
            self.assertAlmostEqual(b, b and 2 * a, 14)
        one = libsoftmax.attention(block(flat(self.q)[12:].tolist(), (1, 1, 3, 4)), self.k, self.v,
                                   streams=block([1], (1,), "q"), **given)
        self.assertEqual(flat(one).tolist(), flat(o)[6:].tolist())  # head 1 alone, by its stream
        do = some((1, 2, 3, 2), 0.9)
        dv = libsoftmax.attention_backward(do, q=self.q, k=self.k, v=self.v, o=o, lse=lse, wanted="v", **given)
        for j in range(5):
            for x in range(2):
                want = sum(kept.tolist()[0][h][i][j] * do.tolist()[0][h][i][x] for h in range(2) for i in range(3))
                self.assertAlmostEqual(dv.tolist()[0][0][j][x], want, 13)
        with self.assertRaisesRegex(ValueError, "options.dropout is 1, not from 0 to below 1"):
            libsoftmax.attention(self.q, self.k, self.v, dropout=1.0)

    def test_rope(self):
        y = libsoftmax.rope(self.q, start=2)
        for h in range(2):
            for i in range(3):
                for t, frequency in enumerate((1, 0.01)):
                    a, b, w = self.q[0, h, i, t], self.q[0, h, i, t + 2], (2 + i) * frequency
                    self.assertAlmostEqual(y[0, h, i, t], a * math.cos(w) - b * math.sin(w), 14)
                    self.assertAlmostEqual(y[0, h, i, t + 2], a * math.sin(w) + b * math.cos(w), 14)
        by_position = libsoftmax.rope(self.q, positions=block([2, 3, 4], (3, 1), "q"))
        self.assertEqual(flat(by_position), flat(y))
        steps, halves = some((1, 2, 3, 2), 0.4), []
        whole = libsoftmax.rope(self.q, positions=steps, base=1, cumulative=True, layout="interleaved", return_carry=True)
        carry = None
        for i in range(3):
            rows = block([self.q[0, h, i, x] for h in range(2) for x in range(4)], (1, 2, 1, 4))
            step = block([steps[0, h, i, t] for h in range(2) for t in range(2)], (1, 2, 1, 2))
            part, carry = libsoftmax.rope(rows, positions=step, base=1, cumulative=True, layout="interleaved", carry=carry, return_carry=True)
            halves.append(part)
        self.assertEqual([[halves[i][0, h, 0, x] for i in range(3) for x in range(4)] for h in range(2)],
                         [[whole.y[0, h, i, x] for i in range(3) for x in range(4)] for h in range(2)])
        self.assertEqual(flat(carry), flat(whole.carry))

    def test_rope_gradients(self):
        dy, steps = some((1, 2, 3, 4), 0.9), some((1, 2, 3, 2), 0.4)
        given = {"positions": steps, "cumulative": True, "frequencies": some((1, 2, 2), 0.8)}
        found = libsoftmax.rope_backward(dy, x=self.q, wanted=("x", "positions", "frequencies"), **given)
        for name, gradient in zip(("x", "positions", "frequencies"), found):
            value = {"x": self.q, **given}[name]
            for i in range(len(flat(value))):
                sides = []
                for step in (1e-6, -1e-6):
                    other = block(flat(value).tolist(), value.shape)
                    flat(other)[i] += step
                    sides.append(sum(a * b for a, b in zip(flat(dy), flat(libsoftmax.rope(**{"x": self.q, **given, name: other})))))
                self.assertAlmostEqual(flat(gradient)[i], (sides[0] - sides[1]) / 2e-6, 8, name)
        self.assertEqual(flat(libsoftmax.rope_backward(dy, wanted="x", **given)), flat(found[0]))
        for text, refused in (("layout: 'neox' is not one of 'half', 'interleaved'", lambda: libsoftmax.rope(self.q, layout="neox")),
                              ("options.dims is 3", lambda: libsoftmax.rope(self.q, dims=3))):
            with self.assertRaisesRegex(ValueError, text):
                refused()
        with self.assertRaisesRegex(TypeError, "x is NULL: d_positions needs it"):
            libsoftmax.rope_backward(dy, wanted="positions", **given)

    def test_tropical(self):
        q, k = block([1, 0.5, -1], (1, 1, 1, 3)), block([1, 0, 0, 0, 1, 2, -1, 1, 0.5], (1, 1, 3, 3))
        v, do = block([1, 0, 0, 1, 1, 1], (1, 1, 3, 2)), block([1, -2], (1, 1, 1, 2))
        found = libsoftmax.attention_tropical(q, k, v, return_winners=True)
        self.assertEqual((flat(found.o).tolist(), flat(found.winners).tolist()), ([-0.5, -1.5], [0, 0]))
        self.assertEqual(flat(libsoftmax.attention_tropical(q, k, v, symmetric=False)).tolist(), [-1.5, -2.5])
        dq, dk, dv = libsoftmax.attention_tropical_backward(do, q=q, k=k, v=v, winners=found.winners)
        self.assertEqual(flat(dq).tolist(), [0, 1, -1])  # t = (0, 0.5, -1), and the sum of do is -1
        self.assertEqual(flat(dk).tolist(), [0, -1, 1, 0, 0, 0, 0, 0, 0])
        self.assertEqual(flat(dv).tolist(), [1, -2, 0, 0, 0, 0])
        with self.assertRaisesRegex(TypeError, "winners is missing"):
            libsoftmax.attention_tropical_backward(do, q=q, k=k, v=v, winners=None)

    def test_out(self):
        out = some((1, 2, 3, 2), 1)
        self.assertIs(libsoftmax.attention(self.q, self.k, self.v, out=out), out)
        self.assertEqual(flat(out), flat(libsoftmax.attention(self.q, self.k, self.v)))

    def test_refused(self):
        q, k, v, call = self.q, self.k, self.v, libsoftmax.attention
        for error, text, refused in (
                (ValueError, "weights: 'hard' is not one of 'softmax'", lambda: call(q, k, v, weights="hard")),
                (ValueError, "'sigmoid' has no 'n', only 'shift'", lambda: call(q, k, v, weights="sigmoid", params={"n": 1})),
                (ValueError, "options.window_left is -2", lambda: call(q, k, v, window_left=-2)),
                (ValueError, "q: ndim is 1, not 2..7", lambda: call(array.array("d", [1]), k, v)),
                (ValueError, "not a multiple of the 2 heads of k", lambda: call(k, q, q)),
                (ValueError, "on_empty: 'no' is not", lambda: call(q, k, v, on_empty="no")),
                (TypeError, "attention: k is missing", lambda: call(q, None, v)),
                (TypeError, "dict shows no array", lambda: call({}, k, v)),
                (ValueError, "stage: 'all' is not one of", lambda: libsoftmax.attention_scores(q, k, stage="all"))):
            with self.assertRaises(error) as caught:
                refused()
            self.assertIn(text, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
