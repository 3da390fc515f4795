# The same, and the agent restarts twice meanwhile, with all that it knew.
0s    runtime starts
0s    kubelet starts
5s    sandbox a of web-0 begins
6s    add a podnet 10.88.0.2
7s    runtime dies
8s    agent restarts
9s    runtime starts
12s   sandbox b of web-0 on podnet 10.88.0.3
13s   container main in b starts
60s   agent restarts
9m    end
expect confirmed leaked_address/runtime_ended 10.88.0.2 web-0 a
expect confirmed orphan_netns web-0 a
expect incident leaked_address .+orphan_netns
