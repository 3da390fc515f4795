# ADD takes an address and fails three times, each time for a new sandbox; the fourth succeeds.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 begins
1s    add a podnet 10.88.0.2 fails-holding
2s    netns of a lost
10s   sandbox b of web-0 begins
10s   add b podnet 10.88.0.3 fails-holding
11s   netns of b lost
20s   sandbox c of web-0 begins
20s   add c podnet 10.88.0.4 fails-holding
21s   netns of c lost
30s   sandbox d of web-0 on podnet 10.88.0.5
31s   container main in d starts
9m    end
expect confirmed leaked_address/add_failed 10.88.0.2 web-0 a
expect confirmed leaked_address/add_failed 10.88.0.3 web-0 b
expect confirmed leaked_address/add_failed 10.88.0.4 web-0 c
expect closed cni_failing bridge x3 web-0 a b c since 1s
expect incident cni_failing .leaked_address .leaked_address .leaked_address
