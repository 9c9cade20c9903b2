"""`completion`: the script that lets a shell complete commands, flags, queues and jobs."""

from __future__ import annotations

import click

from fusion.cli.hints import Command
from fusion.cli.output import echo


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  run_worker.py completion bash\n  run_worker.py completion zsh\n  run_worker.py completion fish",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script for shell completion.

    It completes commands and flags, and queues, jobs and workers from the Redis that the line or the environment names: of jobs the newest that
    failed, run or wait next. If Redis does not answer within 0.2 seconds, nothing is offered, without a message. Needs Bash 4.4 or newer.

    \b
    eval "$(fusion completion bash)"       # in ~/.bashrc
    eval "$(fusion completion zsh)"        # in ~/.zshrc, below compinit
    fusion completion fish | source        # in ~/.config/fish/config.fish
    """
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = ctx.find_root()
    name = root.info_name or "fusion"
    name = "fusion" if name.startswith("python") else name
    # The variable that click itself uses.
    variable = f"_{name}_COMPLETE".replace("-", "_").replace(".", "_").upper()
    # click's own `source` for bash starts a bash to read its version.
    echo(ShellComplete.source(kind(root.command, {}, name, variable)))
