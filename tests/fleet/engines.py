"""Asks an engine the questions: engines.py duckdb|clickhouse FOLDER QUESTIONS [REQUESTS]

FOLDER has the Parquet files of an export, QUESTIONS the .sql files. With REQUESTS, a folder, ClickHouse runs the requests
that a server received instead of reading the files: N.sql, each with its body in N.parquet if it had one.
The answer is JSON on standard output: by question its rows and how long it took.
"""

import json
import os
import pathlib
import sys
import tempfile
import time

THREADS = 2
SLOW = 1.0


def statements(text):
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    return [it for it in "\n".join(lines).split(";\n") if it.strip()]


def duckdb_engine(folder, questions):
    import duckdb

    os.chdir(folder)
    connection = duckdb.connect()
    connection.execute(f"SET threads = {THREADS}")
    connection.execute("SET TimeZone = 'UTC'")
    for statement in statements((questions / "tables.sql").read_text()):
        connection.execute(statement)
    return lambda text: [list(row) for row in connection.execute(text).fetchall()]


def clickhouse_engine(folder, questions, requests):
    from chdb import session

    engine = session.Session(tempfile.mkdtemp(dir=folder))
    engine.query("CREATE DATABASE fleet")
    engine.query("USE fleet")
    engine.query(f"SET max_threads = {THREADS}")
    if requests:
        for request in sorted(requests.glob("*.sql")):
            text, body = request.read_text(), request.with_suffix(".parquet")
            if body.exists():
                text = text.replace(" FORMAT Parquet", f" FROM INFILE '{body}' FORMAT Parquet")
            engine.query(text)
    else:
        for statement in statements((questions / "tables.sql").read_text()):
            engine.query(statement)
        for table in sorted(path.name for path in folder.iterdir() if any(path.glob("date=*"))):
            files = f"file('{folder}/{table}/*/*.parquet', Parquet)"
            engine.query(f"INSERT INTO {table} SELECT * FROM {files} SETTINGS use_hive_partitioning = 0")

    def ask(text):
        settings = " SETTINGS output_format_json_quote_64bit_integers = 0"
        answer = engine.query(text.strip().rstrip(";") + settings, "JSONCompactEachRow")
        return [json.loads(line) for line in answer.data().splitlines()]

    return ask


def timed(ask):
    """The rows and the time: of a slow one the best of three, since other work on the machine is not to count."""
    seconds = []
    while not seconds or (min(seconds) > SLOW and len(seconds) < 3):
        begun = time.monotonic()
        rows = ask()
        seconds.append(time.monotonic() - begun)
    return {"rows": rows, "seconds": min(seconds)}


def main():
    engine, folder, questions = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    requests = pathlib.Path(sys.argv[4]) if len(sys.argv) > 4 else None
    begun = time.monotonic()
    if engine == "duckdb":
        ask = duckdb_engine(folder, questions)
    else:
        ask = clickhouse_engine(folder, questions, requests)
    answers = {"": {"rows": [], "seconds": time.monotonic() - begun}}
    for question in sorted(questions.glob("[0-9]*.sql")):
        text = "\n".join(statements(question.read_text()))
        answers[question.stem] = timed(lambda: ask(text))
    json.dump(answers, sys.stdout)


main()
