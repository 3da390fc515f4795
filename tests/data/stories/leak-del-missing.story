# The runtime's record goes without a DEL ever being called.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
9s    stop a no-del
10s   pod web-0 goes
10s   remove a no-del
9m    end
expect confirmed leaked_address/del_missing 10.88.0.2 web-0 a since 9s
