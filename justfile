# Every task of this project.  `just` lists them; `./dev just RECIPE` also sets up the checkout first.
# `ci` is what CI runs.  Arguments after a test recipe go to pytest: `just unit -k budget -x`.

set positional-arguments

venv := justfile_directory() / ".venv"
export VIRTUAL_ENV := venv
export PATH := venv / "bin:" + env("PATH")

# fault tests in seven parts that CI runs at the same time
kills := "test_kill.py"
crashes := "test_crash_points.py"
cuts := "test_network.py or test_broker_phases.py or test_neighbours.py"
losses := "test_left_open.py or test_lost_logs.py or test_gaps.py or test_hanging.py"
copies := "test_copies_cut.py or test_positions_older.py"
rounds := "test_disaster_rounds.py or test_promoted_copies.py"
disasters := "test_disasters.py or test_named_faults.py"

# show the recipes
_default:
    @just --list --unsorted

# set up or refresh this checkout: .venv, locked requirements, extension
dev:
    ./dev

# build the Rust extension in release mode, only if something changed
build:
    ./dev

# class archives of Kafka and Spark in the cache folder: brokers and mirrors start in about half their CPU time
archives:
    python -m eomirror.demo.class_archives

# compile what the Rust tests and clippy need, so that their stage only runs them
build-tests: archives
    cargo test --workspace --exclude eomirror-py --locked --no-run
    cargo build --release --locked -p eomirror-fuzz
    cargo clippy --workspace --all-targets --locked --quiet

# format Python and Rust
fmt:
    ruff check --fix --select I python tests bench scripts
    ruff format python tests bench scripts
    cargo fmt --all

# every check that needs no run: style, types, stub, layers, lock, Rust
lint: lint-python lint-types lint-layers lint-stub lint-rust

# the lock is current; ruff, rules and format
lint-python:
    python scripts/lock.py --check
    ruff check --output-format concise .
    ruff format --check .

# mypy --strict on the package, the scripts and the benchmarks
lint-types:
    mypy
    mypy --strict scripts/*.py
    mypy --strict bench

# import-linter: which layer may import which (contracts in pyproject.toml)
lint-layers:
    lint-imports --no-cache

# the hand-written stub of eomirror._core says what the extension is
lint-stub:
    python -m mypy.stubtest eomirror._core --mypy-config-file pyproject.toml

# the wheel, installed into an empty environment and run there
wheel *ARGS:
    python scripts/wheel.py "$@"

# alert rules, dashboard and chart, judged by promtool, helm and kubeconform, which are built once (needs Go)
deploy-check *ARGS:
    python scripts/deploy_tools.py
    PATH="$PWD/target/tools:$PATH" pytest -q tests/unit/test_deploy.py tests/unit/test_chart.py \
        tests/unit/metrics/test_alert_rules.py tests/unit/metrics/test_dashboard.py "$@"

# rustfmt and clippy, warnings are errors
lint-rust:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings

# Python unit, property and golden tests; no broker, no Spark
unit *ARGS:
    python scripts/ci.py --suite unit -m "not slow" "$@"

# Rust: tests, mutated bytes for every reader, rustfmt and clippy
rust: build-tests && fuzz lint-rust
    cargo test --workspace --exclude eomirror-py --locked --quiet

# mutated bytes for every reader of the core and the native plane, each so long, all of them at the same time
fuzz SECONDS="30" SEED="4711":
    cargo run --release --locked --quiet -p eomirror-fuzz -- all --seconds {{SECONDS}} --seed {{SEED}} --at-once 8

# tests on real brokers and Spark, started by the fixtures
integration *ARGS:
    python scripts/ci.py --suite integration -m "not slow" "$@"

# those that start clusters and commands of their own, and wait for them; CI runs them beside the others
integration-clusters: (integration "-k" "test_cluster or test_command_line or test_away")

mirrors := "test_mirror or test_offset_translation or test_take_over or test_status_topics or test_stopped_topics or test_metrics"
returns := "test_failover or test_way_back or test_changed_source"
refusals := "test_rights or test_gone_topics or test_restoration_ranges or test_stated_loss or test_return_says or test_topic_quota or test_refused_topics"

# those that run whole mirrors; beside the others, too
integration-mirrors: (integration "-k" "not test_cluster and not test_command_line and not test_away and (" + mirrors + ") and not (" + returns + ")")

# those that go there and back around a disaster; beside the others, too
integration-returns: (integration "-k" "not test_cluster and not test_command_line and not test_away and (" + returns + ")")

# those of what is left out, refused or lost, and named
integration-refusals: (integration "-k" refusals + " and not (" + mirrors + " or " + returns + ")")

# the others
integration-rest: (integration "-k" "not test_cluster and not test_command_line and not test_away and not (" + mirrors + " or " + returns + " or " + refusals + ")")

# tests that kill, pause or cut something on purpose, each under 20,000 records where their number is free
faults *ARGS:
    EOMIRROR_FAULT_RECORDS="${EOMIRROR_FAULT_RECORDS:-20000}" EOMIRROR_FAULT_RATE="${EOMIRROR_FAULT_RATE:-2000}" \
    python scripts/ci.py --suite faults -m "not slow" "$@"

# those that kill the mirror over and over
faults-kills: (faults "-k" kills)

# those that end the mirror between any two of its steps
faults-crashes: (faults "-k" crashes)

# those that cut the network, kill brokers, and freeze a link
faults-cuts: (faults "-k" cuts)

# those in which source logs lose records, or transactions stay open
faults-losses: (faults "-k" losses)

# those in which a copy loses records, or its positions are older
faults-copies: (faults "-k" copies)

# those in which logs lose their ends around a failover
faults-rounds: (faults "-k" rounds)

# those of a whole cluster, and each named fault on the page
faults-disasters: (faults "-k" disasters)

# the others
faults-rest: (faults "-k" "not (" + kills + " or " + crashes + " or " + cuts + " or " + losses + " or " + copies + " or " + rounds + " or " + disasters + ")")

# all faults over and over for hours, seeded: --hours N; writes docs/reports/DATE-faults-PLANE.md
faults-long *ARGS:
    python scripts/faults_long.py "$@"

# a healthy link of two clusters of three brokers for so long, on one plane: leader moves, restarts, retention, compaction
soak SECONDS="1800" PLANE="native":
    EOMIRROR_SOAK_SECONDS={{SECONDS}} python -m pytest -q --plane {{PLANE}} tests/faults/test_no_false_alarm.py

# so many small records, copied by a backfill that is killed twice and stopped once while producers go on; verified
backfill-long RECORDS="100000000" PLANE="native":
    EOMIRROR_BACKFILL_RECORDS={{RECORDS}} KAFKA_JVM_PERFORMANCE_OPTS="-XX:+UseG1GC" \
        python -m pytest -q -s --plane {{PLANE}} tests/integration/test_backfill.py -k millions

# so many random operations on a source while a link runs: topics, settings, rights, quotas, schemas; the target converges
operations STEPS="1000":
    EOMIRROR_OPERATIONS={{STEPS}} python -m pytest -q tests/integration/test_random_operations.py

# one fault test again, with the seed that a report names: EOMIRROR_SEED=N just faults-replay NODE
faults-replay *ARGS:
    python -m pytest -o log_cli=true -o log_cli_level=INFO "$@"

# the lane on a simulated Kafka, as many schedules as CI has time for
model *ARGS:
    python scripts/ci.py --suite model -m "not slow" "$@"

# the lane on a simulated Kafka: so many schedules on all cores, from a seed on; an hour for a million; tells its coverage
model-long SCHEDULES="1000000" FIRST="0":
    EOMIRROR_SIM_SCHEDULES={{SCHEDULES}} EOMIRROR_SIM_FIRST={{FIRST}} \
        python -m pytest -q -s tests/sim/test_model.py -k no_schedule

# tests of the Spark engine, which make and end contexts of their own
engine *ARGS:
    python scripts/ci.py --suite engine -m "not slow" "$@"

# DataFrames in and out of Kafka, on a session as users have it
dataframe *ARGS:
    python scripts/ci.py --suite dataframe -m "not slow" "$@"

# the atomic sink under so many seeded kills on three workers, from a number of fault on; EOMIRROR_SEED=N repeats them
sink-kills KILLS="100" FIRST="0":
    EOMIRROR_SINK_KILLS={{KILLS}} EOMIRROR_SINK_FIRST={{FIRST}} python -m pytest -q -o log_cli=true -o log_cli_level=INFO \
        tests/dataframe/test_sink_kills.py -k three_workers

# consumers that move at random moments, the mirror killed in between: --trials 100 --mm2 100 --seed N
moving-consumers *ARGS:
    PYTHONPATH={{justfile_directory()}}/python:{{justfile_directory()}}/tests python -m support.links.moving "$@"

# transactions of which a broker that stood still leaves markers out (docs/adr/0012): --lanes 30 --rounds 6 --seed N; best on a busy machine
lost-markers *ARGS:
    PYTHONPATH={{justfile_directory()}}/python:{{justfile_directory()}}/tests python -m support.links.markers "$@"

# against MirrorMaker 2's own classes, other broker versions, other topologies
interop *ARGS:
    python scripts/ci.py --suite interop -m "not slow" "$@"

# those that are about the native plane; CI runs four of the five parts at the same time
interop-native: (interop "-k" "native and not topologies")

# the native plane on a target of the older transaction protocol: held, late and lost requests of a producer, and of a
# link that places records by key; a target that is upgraded
interop-older: (interop "--plane" "native" "--target-kafka" "3.9" "-k" "test_native_transactions or test_target_upgrades or (test_keyed_partitions and (late or still))")

# topologies of several clusters
interop-topologies: (interop "-k" "topologies and not test_filled_copies and not test_where_mm2_was")

# links that meet copies which hold records already
interop-filled: (interop "-k" "test_filled_copies or test_where_mm2_was")

# those beside a real MirrorMaker 2
interop-mm2: (interop "-k" "test_mm2 and not native and not topologies")

# the others
interop-rest: (interop "-k" "not native and not topologies and not test_mm2 and not test_target_upgrades")

# verify and the log audit: planted defects are found, and nothing else
audit *ARGS:
    python scripts/ci.py --suite audit -m "not slow" "$@"

# the benchmark in its smallest size: does it run, are the copies equal
bench-small:
    python -m bench --small

# the benchmark beside MirrorMaker 2, in full; about half an hour
bench *ARGS:
    python -m bench "$@"

# what CI runs: all stages in order, each within its budget of minutes; or the stages named
[no-exit-message]
ci *STAGES:
    python scripts/ci.py "$@"

# everything, slow tests included, without budgets; writes docs/reports/DATE-full.md
full *SUITES: build lint
    python scripts/full_report.py "$@"

# two throw-away clusters, a mirror that is killed, a report
demo *ARGS:
    eomirror demo "$@"

# write the generated pages (settings, commands, exit codes, outputs), and check links and decisions in the documents
docs:
    python scripts/lane_states.py
    python -m eomirror.config.schema docs
    python scripts/docs_reference.py
    python -m pytest -q tests/unit/test_docs.py

# write outputs that need clusters into the pages of the topologies: all, or those named
docs-examples *NAMES:
    PYTHONPATH={{justfile_directory()}}/python:{{justfile_directory()}}/tests python -m support.links.example_outputs "$@"

# build the documentation site into target/site; a dead link or an asset of another host is an error
docs-site:
    python scripts/file_map.py
    NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

# write requirements.txt from pyproject.toml, keeping pins that fit (needs uv; --upgrade renews all)
lock *ARGS:
    python scripts/lock.py "$@"
