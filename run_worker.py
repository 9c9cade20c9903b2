from fusion.cli.main import main

main()
