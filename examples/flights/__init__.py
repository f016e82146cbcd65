"""`./run demo`: 336,776 real flights through a name server and a broker, Spark, a Parquet table and back to a topic.

    flight_book.py  every flight that left New York in 2013, in departure order, as messages
    cluster.py      a name server and a SYNC_FLUSH broker in a thread of this process
    replay.py       the flights into the topic `flights`, one aircraft always on one queue
    session.py      a quiet Spark that can be ended at any moment
    tables.py       Structured Streaming: flights to Parquet; delays by origin and hour to Parquet and topic `delays`
    results.py      a consumer of `delays`
    stages.py       the progress and the speed of each part
    screen.py       progress bars and a live table
    proof.py        compares the output with the data set, without any of the above
    show.py         all of it together
    folders.py      the folders of its files

All parts run at the same time, as they would in a company: Spark reads while the flights still come in.
"""
