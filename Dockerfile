FROM python:3.13-slim

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /srv/fusion

RUN useradd --system --uid 10001 --no-create-home fusion

# Dependencies alone, so that a change of the code does not install them again; Fusion itself runs from the checkout, like tasks/.
COPY pyproject.toml LICENSE ./
COPY fusion/__init__.py ./fusion/
RUN pip install --no-cache-dir --disable-pip-version-check ".[tasks,worker]" && pip uninstall --yes fusion-queue

COPY fusion ./fusion
COPY tasks ./tasks
COPY wrappers ./wrappers
COPY run_worker.py ./
USER 10001

# A first TERM is the warm shutdown: the worker finishes its jobs and takes none.
STOPSIGNAL SIGTERM
ENTRYPOINT ["python", "run_worker.py"]
CMD ["worker", "--customq", "all"]
