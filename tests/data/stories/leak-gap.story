# Records were lost: the address is leaked all the same, but not for a cause that nobody saw.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
5s    lose 3
9s    stop a no-del
10s   remove a no-del
9m    end
expect blind_spot
expect confirmed leaked_address/stale_record 10.88.0.2 web-0 a
