# A sandbox that takes its time is of the runtime that runs now: its record comes with its pause.
0s    runtime starts
0s    kubelet starts
5s    runtime dies
6s    runtime starts
7s    sandbox a of web-0 begins
8s    add a podnet 10.88.0.2
200s  sandbox a runs
201s  container main in a starts
9m    end
expect nothing
