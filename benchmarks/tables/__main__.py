from benchmarks.tables import main

main()
