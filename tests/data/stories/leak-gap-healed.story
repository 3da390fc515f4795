# Records were lost, but a listing after that shows that the sandbox and its address are as they were.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
5s    lose 3
60s   stop a no-del
61s   remove a no-del
9m    end
expect blind_spot
expect confirmed leaked_address/del_missing 10.88.0.2 web-0 a
