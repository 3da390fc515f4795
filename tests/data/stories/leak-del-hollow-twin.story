# The first DEL reports success and frees nothing. The second one frees the address.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
9s    stop a del-hollow
10s   remove a
9m    end
expect nothing
