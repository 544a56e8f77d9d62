# Two commands matter: `make demo` (film to shards on this machine) and `make test`.
PYTHON ?= python3
FILM ?= slice
OUT ?= demo
SIZE ?= tiny
RECIPE ?= full
KILLS ?= 200
BIN := .venv/bin
# a good part of the tests is waiting, of the slow ones more: three and four workers for two cores
WORKERS = $(shell expr $$(getconf _NPROCESSORS_ONLN) \* 3 / 2)
test-slow: WORKERS = $(shell expr $$(getconf _NPROCESSORS_ONLN) \* 2)
# bytecode at installation: else every start under PYTHONDONTWRITEBYTECODE, set in many images, compiles torch anew
INSTALL := $(BIN)/uv pip install --quiet --compile-bytecode --constraint constraints.txt --editable

.PHONY: help play demo demo-eval miniature install install-flow install-train install-evaluate install-cloud install-ray install-dev lmdeploy-env test test-slow test-all test-nightly bench bench-model bench-speeds bench-learning bench-motion bench-camera bench-scenes bench-season bench-sound bench-real bench-sampling bench-distillation bench-tokenizer bench-windows bench-captions bench-review bench-cast bench-clips bench-embeddings bench-training bench-metrics bench-eval soak constraints constraints-lmdeploy clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-22s %s\n", $$1, $$2}'

.venv/bin/uv:
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt uv

.venv/installed: .venv/bin/uv pyproject.toml constraints.txt
	$(INSTALL) .
	touch $@

.venv/installed-evaluate: .venv/bin/uv pyproject.toml constraints.txt
	$(INSTALL) '.[train,evaluate]'
	touch $@ .venv/installed-train

.venv/installed-%: .venv/bin/uv pyproject.toml constraints.txt
	$(INSTALL) '.[$*]'
	touch $@

.venv/installed-dev: .venv/bin/uv pyproject.toml constraints.txt
	$(INSTALL) '.[flow,train,evaluate,cloud,ray,dev]'
	touch $@ .venv/installed $(addprefix .venv/installed-,flow train evaluate cloud ray)

install: .venv/installed  ## the data half, without torch
install-flow: .venv/installed-flow  ## also optical flow by a network (torch, ptlflow)
install-train: .venv/installed-train  ## also the networks: to play and to train (torch, transformers, diffusers, peft)
install-evaluate: .venv/installed-evaluate  ## also DreamSim and open_clip, to evaluate games with
install-cloud: .venv/installed-cloud  ## also object stores: films, cast and datasets at s3:// addresses
install-ray: .venv/installed-ray  ## also Ray: stages on a cluster
install-dev: .venv/installed-dev  ## everything, for working on the project

.venv-lmdeploy/installed: .venv/bin/uv constraints-lmdeploy.txt
	$(BIN)/uv venv --quiet --clear --python $(PYTHON) .venv-lmdeploy
	$(BIN)/uv pip install --quiet --compile-bytecode --python .venv-lmdeploy/bin/python --requirement constraints-lmdeploy.txt
	touch $@

lmdeploy-env: .venv-lmdeploy/installed  ## lmdeploy for `animegamer caption-server`, in .venv-lmdeploy: 7.8 GB, 2 minutes

demo: install  ## build a dataset from Big Buck Bunny: its first 125 s, or all of it with FILM=full
	film="$$($(BIN)/python -m examples.bunny.film)" && cast="$$($(BIN)/python -m examples.bunny.cast)" && \
		$(BIN)/animegamer build "$$film" --cast "$$cast" --out $(OUT) --config examples/bunny/demo.toml \
		$(if $(filter full,$(FILM)),,--end 125)

demo-eval: install-train  ## games by the model of the package and untrained agents, a stand-in for the judge, a report
	$(BIN)/python -m examples.evaluation.demo --out demo-eval

play: install-train  ## play in a small drawn world, on a page: the model comes with the package
	$(BIN)/animegamer play --serve --open

miniature: install-train  ## train the model of that world on two cores, step by step (9 hours), and measure it
	$(BIN)/python -m examples.miniature all --out miniature

# our modules have no bytecode: else every command that the tests start compiles them anew
test test-slow test-nightly: export PYTHONDONTWRITEBYTECODE =

test: install-dev  ## lint, types, import contracts, fast tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q -n $(WORKERS) --dist loadfile

test-slow: install-dev  ## the slow tests of the gate, and those on the real film
	$(BIN)/pytest -q -n $(WORKERS) --dist loadfile -m '(slow or film) and not nightly' --timeout 1200 --durations=10

test-all: test test-slow  ## all tests of the gate

test-nightly: install-dev  ## long tests outside the gate: run after changing what they cover
	ANIMEGAMER_KILLS=30 $(BIN)/pytest -q -n auto --dist loadfile -m nightly --timeout 2400 --durations=0

bench: install-dev  ## speed and memory on the real film, beside a naive baseline
	$(BIN)/python -m benchmarks.build

bench-model: install-dev  ## seconds and memory a turn of the game; SIZE=full on a GPU
	$(BIN)/python -m benchmarks.model --size $(SIZE)

bench-speeds: install-train  ## the packaged game at each speed: seconds, and its difference from the best
	$(BIN)/python -m benchmarks.speeds

bench-learning: install-train  ## proof that it learns, on painted clips: its claims, measured; ONLY=motion for one
	$(BIN)/python -m benchmarks.learning $(if $(ONLY),--only $(ONLY))

bench-motion: install-dev  ## motion scope and level on composed clips of known motion
	$(BIN)/python -m benchmarks.motion

bench-camera: install-dev  ## kinds of camera moves, on shots of a real film labelled by eye and on composed clips
	$(BIN)/python -m benchmarks.camera

bench-scenes: install-dev  ## found scene changes, and clips with two scenes, on composed films with truth (an hour and a half)
	$(BIN)/python -m benchmarks.scenes $(if $(TRANSNETV2),--transnetv2 $(TRANSNETV2))

bench-sampling: install-train  ## quality of the packaged game against denoising steps, by sampler and guidance
	$(BIN)/python -m benchmarks.sampling

bench-distillation: OUT = distillation
bench-distillation: install-train  ## distilled decoders against their teacher, in the world: MINI=DIR TEACHER=CHECKPOINT, STUDENT="CHECKPOINT ..."
	$(BIN)/python -m benchmarks.distillation $(MINI) --teacher $(TEACHER) $(if $(STUDENT),--student $(STUDENT),--tokens) $(if $(OUT),--out $(OUT))

bench-tokenizer: RECIPE = one-film
bench-tokenizer: install-train  ## the paper's table of the tokenizer: DATA=DIR OUT=DIR, RECIPE, CONFIG, MEASURE="--cast DIR ..."
	$(BIN)/python -m benchmarks.tokenizer $(DATA) --out $(OUT) $(if $(RECIPE),--recipe $(RECIPE)) $(if $(CONFIG),--config $(CONFIG)) $(MEASURE)

bench-windows: install-train  ## packed windows of phase b against windows with one target: DATA=DIR OUT=DIR, FROM=CHECKPOINT, STEPS=300
	$(BIN)/python -m benchmarks.packed_windows $(DATA) --out $(OUT) $(if $(FROM),--from $(FROM)) $(if $(STEPS),--steps $(STEPS))

bench-real: install-dev  ## scene changes and mixed clips on real pictures: REAL=DIR with their changes; QUICK=1
	$(BIN)/python -m benchmarks.real $(REAL) $(if $(QUICK),--quick)

bench-season: install-dev  ## openings, endings, recaps and previews found in composed seasons, with truth (hours)
	$(BIN)/python -m benchmarks.season

bench-sound: install-train  ## whole builds in turns, with and without dialogue and sound, and reading of their shards
	$(BIN)/python -m benchmarks.sound

bench-captions: install-dev  ## use of a model server's slots, CPU and memory of the caption client
	$(BIN)/python -m benchmarks.captions

bench-review: install-dev  ## first grid, clip, filter and search of the review page over 20,000 clips, in Chromium
	$(BIN)/python -m benchmarks.review

bench-embeddings: install-dev  ## search of 100,000 embedded clips; PICTURES=NETWORK CLIPS=DIR: cost of a clip
	$(BIN)/python -m benchmarks.embeddings $(if $(PICTURES),--pictures $(PICTURES) --clips $(CLIPS),--search 100000)

bench-cast: install-dev  ## characters carried from a few reviewed clips; DATA=DIR of Big Buck Bunny, built
	$(BIN)/python -m benchmarks.cast --dataset $(DATA)

bench-clips: install-dev  ## CPU and memory of a notebook and of `animegamer clips` on 100,000 clips
	$(BIN)/python -m benchmarks.clips

bench-training: install-train  ## memory and time of a training step; RECIPE=card24; PRECISION=bf16; RECIPE=tiny: speed on a CPU
	$(BIN)/python -m benchmarks.$(if $(filter tiny,$(RECIPE)),training_speed,training --recipe $(RECIPE) \
		$(if $(PRECISION),--precision $(PRECISION)))

bench-metrics: install-train  ## do the metrics of an evaluation notice known defects? painted agents, a table of both
	$(BIN)/python -m benchmarks.metrics

bench-eval: install-train  ## clips a second of each part of the metrics, and memory as clips become more
	$(BIN)/python -m benchmarks.evaluation

soak: install-dev  ## kill builds at KILLS random moments and compare the results of their reruns, byte for byte
	ANIMEGAMER_KILLS=$(KILLS) $(BIN)/pytest -q -s -m 'slow or nightly' --timeout 0 tests/flows/test_killed.py

constraints: install-dev  ## resolve the pins anew
	$(BIN)/uv pip compile --quiet pyproject.toml --extra flow --extra train --extra evaluate --extra cloud --extra ray --extra dev --universal \
		--python-version 3.11 --no-annotate --no-header --no-emit-index-url --upgrade --output-file constraints.txt

constraints-lmdeploy: install-dev  ## resolve the pins of lmdeploy's environment anew
	$(BIN)/python -c "from pipeline.captions.caption_server import LMDEPLOY; print(f'lmdeploy=={LMDEPLOY}')" | \
		$(BIN)/uv pip compile --quiet - --python-version 3.11 --python-platform x86_64-manylinux_2_28 --no-annotate \
		--no-header --no-emit-index-url --upgrade --output-file constraints-lmdeploy.txt

clean:  ## remove the environment and the outputs of the commands above
	rm -rf .venv .venv-lmdeploy demo demo-eval miniature bench-learning bench-scenes bench-real bench-transitions bench-overlays distillation
	git worktree prune
