# The node is suspended before the address is given back, and for long: the time to clean up begins when it wakes.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
9s    stop a no-del
10s   remove a no-del
9m    wakes
650s  end
expect candidate leaked_address/del_missing 10.88.0.2 web-0 since 9s
