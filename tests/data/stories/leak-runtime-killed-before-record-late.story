# The same, and the agent comes only afterwards: the leak is the same one, and how it came about was not seen.
0s    runtime starts
0s    kubelet starts
5s    sandbox a of web-0 begins
6s    add a podnet 10.88.0.2
7s    runtime dies
9s    runtime starts
10s   agent starts
12s   sandbox b of web-0 on podnet 10.88.0.3
13s   container main in b starts
9m    end
expect confirmed leaked_address/stale_record 10.88.0.2
