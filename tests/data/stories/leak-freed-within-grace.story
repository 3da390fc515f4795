# It is freed before its grace is over: told as a candidate, never confirmed.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
9s    stop a no-del
10s   remove a no-del
80s   free 10.88.0.2
9m    end
expect closed leaked_address/del_missing 10.88.0.2 web-0 a
