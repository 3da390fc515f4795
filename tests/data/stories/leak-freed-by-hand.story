# Somebody frees the address by hand: it is closed.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
9s    stop a no-del
10s   remove a no-del
5m    free 10.88.0.2
9m    end
expect closed leaked_address/del_missing 10.88.0.2 web-0 a
