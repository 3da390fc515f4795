# The same, and records were lost meanwhile: the leak is a leak, and its cause may be another one.
0s    runtime starts
0s    kubelet starts
5s    sandbox a of web-0 begins
6s    add a podnet 10.88.0.2
6s    lose 3
7s    runtime dies
9s    runtime starts
12s   sandbox b of web-0 on podnet 10.88.0.3
13s   container main in b starts
9m    end
expect confirmed blind_spot
expect confirmed leaked_address/stale_record 10.88.0.2 web-0 a
expect confirmed orphan_netns web-0 a
expect incident leaked_address .+orphan_netns
