# All containers of the pod have completed, and the kubelet does not stop the sandbox.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of job-0 on podnet 10.88.0.2
1s    pod job-0 has main
2s    container main in a starts
30s   container main in a exits 0
9m    end
expect confirmed abandoned_sandbox main job-0 a since 30s
