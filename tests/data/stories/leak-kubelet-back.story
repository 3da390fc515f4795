# The kubelet comes back: the grace begins anew.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
5s    kubelet dies
9s    stop a no-del
10s   remove a no-del
400s  kubelet starts
9m    end
expect confirmed leaked_address/del_missing 10.88.0.2 web-0 a since 9s
