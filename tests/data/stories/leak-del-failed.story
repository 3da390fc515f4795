# Every DEL fails, and the runtime gives up.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
9s    stop a del-fails
60s   del a del-fails
70s   remove a del-fails
9m    end
expect confirmed leaked_address/del_failed 10.88.0.2 web-0 a
expect closed cni_failing/del bridge x3 web-0 a since 9s
expect incident cni_failing .leaked_address
