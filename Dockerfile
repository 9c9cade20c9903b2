# A tag may mean another image tomorrow. For one that stays give it with its digest, as docs/operations.md ("Images that stay") says.
ARG PYTHON_IMAGE=python:3.13-slim
FROM ${PYTHON_IMAGE}

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /srv/fusion

RUN useradd --system --uid 10001 --no-create-home fusion

# Dependencies alone, so that a change of the code does not install them again; Fusion itself runs from the checkout, like tasks/.
COPY requirements.lock ./
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes --only-binary :all: -r requirements.lock

COPY fusion ./fusion
COPY tasks ./tasks
COPY wrappers ./wrappers
COPY run_worker.py LICENSE ./
USER 10001

# A first TERM is the warm shutdown: the worker finishes its jobs and takes none.
STOPSIGNAL SIGTERM
ENTRYPOINT ["python", "run_worker.py"]
CMD ["worker", "--customq", "all"]
