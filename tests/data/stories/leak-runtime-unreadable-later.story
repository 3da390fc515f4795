# A confirmed leak stays open while the runtime's records cannot be read whole: nothing was freed.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
9s    stop a no-del
10s   remove a no-del
5m    half-read
6m    sandbox b of web-1 on podnet 10.88.0.3
9m    end
expect confirmed leaked_address/del_missing 10.88.0.2 web-0 a
expect confirmed blind_spot
