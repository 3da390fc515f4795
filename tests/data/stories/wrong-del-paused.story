# The agent is stopped in the middle of calls. When it continues, it learns that records were lost: the ends of
# the ADDs may be among them.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 begins
2s    lose 1 until 40s
3s    add a podnet overtaken
4s    netns of a lost
5s    sandbox b of web-1 begins
6s    add b podnet overtaken
7s    netns of b lost
9m    end
expect blind_spot
