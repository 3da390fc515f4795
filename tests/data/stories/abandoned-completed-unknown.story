# Nobody pulls an image for an hour: this pod has completed, and the kubelet does not stop the sandbox.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of job-0 on podnet 10.88.0.2
2s    container main in a starts
3s    container main in a exits 0
62m   end
expect confirmed abandoned_sandbox main job-0 a since 3s
