# The end of the ADD may be among the lost records, which are told of a moment later.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 begins
3s    add a podnet overtaken
4s    netns of a lost
5s    lose 1
9m    end
expect blind_spot
