"""Tests of the command: the ways in which people write tables of numbers as text."""
import arrays as A
from harness import fails, put, run, test, UNREADABLE

ROWS = [[1.0, 2.0, 3.0], [-4.0, 5.5, 6.0]]


def weights(name, data, *options):
    put(name, data)
    return run(name, *options, "-o", "-", "--out-format", "csv")[0]


def want(rows):
    return weights("want.npy", A.npy("f64", (len(rows), len(rows[0])), sum(rows, [])))


@test("formats")
def separators():
    for data in (b"1,2,3\n-4,5.5,6\n", b"1 2 3\n-4 5.5 6\n", b"  1   2 3  \n-4  5.5 6\n",
                 b"1;2;3\n-4; 5.5 ;6\n", b"1\t2\t3\n-4\t5.5\t6\n",
                 b"1, 2, 3\n-4, 5.5, 6", b"# scores of two rows\n1 2 3\n\n-4 5.5 6\n",
                 b"a b c\n1 2 3\n-4 5.5 6\n", b"two rows\n1,2,3\n-4,5.5,6\n"):
        for name in ("x.csv", "x.tsv", "x.txt"):
            assert weights(name, data) == want(ROWS), (name, data)


@test("formats")
def a_column_of_names():
    for data in (b"cat,1,2,3\ndog,-4,5.5,6\n",                          # names
                 b"name,a,b,c\ncat,1,2,3\ndog,-4,5.5,6\n",              # and a header
                 b'"Smith, J",1,2,3\n"Doe, A",-4,5.5,6\n',              # with the separator inside
                 b",a,b,c\n0,1,2,3\n1,-4,5.5,6\n",                      # as pandas writes
                 b'"a" "b" "c"\n"1" 1 2 3\n"2" -4 5.5 6\n',             # as R writes
                 b"cat 1 2 3\ndog -4 5.5 6\n", b"cat\t1\t2\t3\ndog\t-4\t5.5\t6\n",
                 "é;1;2;3\nü;-4;5.5;6\n".encode()):
        assert weights("x.csv", data) == want(ROWS), data
    assert weights("x.csv", b",2019,2020,2021\n0,1,2,3\n1,-4,5.5,6\n", "--header") == want(ROWS)
    assert weights("x.csv", b"-inf,1,2\n") == want([[float("-inf"), 1, 2]]), "a number is not a name"


@test("formats")
def what_is_no_name():
    for data, says in ((b"NA,1,2\n3,4,5\n", "line 1, column 1: 'NA' is not a number"),
                       (b"1.0.0,1,2\n", "'1.0.0' is not a number"),
                       (b"cat,1,2\n3,4,5\n", "line 2, column 1: a number, where the first row has a name"),
                       (b"1,2\ncat,3\n", "line 2, column 1: 'cat' is not a number"),
                       (b",1,2\n", "line 1, column 1: '' is not a number"),
                       (b"cat,1,2\ndog,3\n", "line 2, column 3: the row has 1 values, the first had 2"),
                       (b"cat,1,x\n", "line 1, column 3: 'x'"),
                       (b"1 2 3\n4 5\n", "line 2, column 3: the row has 2 values"),
                       (b"1,5 2,5\n", "'5 2' is not a number")):
        put("x.csv", data)
        fails(UNREADABLE, "x.csv", says=["x.csv", says])
