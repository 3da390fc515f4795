# DEL fails, and the runtime then forgets the sandbox without a sign; another sandbox of the pod lives.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    stop a del-fails
3s    sandbox b of web-0 on podnet 10.88.0.3
4s    remove a no-del
9m    end
expect confirmed leaked_address/del_failed 10.88.0.2 web-0 a
