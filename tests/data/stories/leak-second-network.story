# A pod on two networks: the DEL of one of them fails for good.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2 and second 10.77.0.2
9s    stop a no-del
10s   remove a no-del
9m    end
expect confirmed leaked_address/del_missing 10.88.0.2 web-0 a
expect confirmed leaked_address/del_missing 10.77.0.2 web-0 a
expect incident leaked_address .+leaked_address
