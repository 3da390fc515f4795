# A sandbox for a pod that is done stands there for long: the one before is not forgotten as long as it tells what it is.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of job-1 on podnet 10.88.0.2
2s    container main in a starts
3s    container main in a exits 0
4s    stop a
5s    sandbox b of job-1 on podnet 10.88.0.3
6s    remove a
60m   stop b
61m   remove b
62m   end
expect confirmed duplicate_sandbox/after_completion x1 job-1 a b since 5s
