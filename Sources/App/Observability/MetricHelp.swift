/// What each metric of ours tells, for `# HELP`: in one place, since the parts that count know no Prometheus.
enum MetricHelp {
  /// By metric name without `_total`.
  static let sentences: [String: String] = [
    "imagefetch_cache_bytes": "Bytes on disk of the images that the cache refers to.",
    "imagefetch_cache_entries": "Responses and variants that the cache holds.",
    "imagefetch_cache_memory_bytes": "Bytes of cached images that are also held in memory.",
    "imagefetch_cache_outcomes": "Jobs finished, by what the cache did for them.",
    "imagefetch_canaries":
      "Times that it was tried whether images can be decoded, as none was for a while.",
    "imagefetch_decode_seconds": "Computing time of one image's decode.",
    "imagefetch_decoders_ended": "Decoder processes that ended, by why.",
    "imagefetch_decoders_started": "Decoder processes that were started.",
    "imagefetch_deliveries": "Images and variants brought to destinations, by what came of it.",
    "imagefetch_fetch_bytes": "Bytes of content received from origins.",
    "imagefetch_fetch_open_transfers": "Requests to origins under way.",
    "imagefetch_fetch_requests": "Requests to origins that ended, by what came of them.",
    "imagefetch_http_request_duration_seconds":
      "From a client's request to its answer, waiting for a job included.",
    "imagefetch_http_requests": "Clients' requests answered, by route, method and status.",
    "imagefetch_image_bytes": "Bytes of all images kept.",
    "imagefetch_images": "Images kept; equal bytes count once.",
    "imagefetch_instance_info": "1, by what this instance is called and its release.",
    "imagefetch_instance_leads": "Whether this instance does what one does for all.",
    "imagefetch_job_seconds": "From a worker's taking a job first to its end.",
    "imagefetch_jobs": "Jobs known, by phase.",
    "imagefetch_jobs_fenced":
      "Ends of jobs that counted for nothing, as another instance had the job by then.",
    "imagefetch_jobs_finished": "Jobs finished, by phase and, for failures, the error's code.",
    "imagefetch_jobs_joined": "Jobs that joined an equal one's transfer.",
    "imagefetch_jobs_running": "Work under way: a job, or several that share one transfer.",
    "imagefetch_jobs_submitted": "Jobs accepted.",
    "imagefetch_jobs_taken_over":
      "Jobs given back to the queue from here, as the instance that loaded them was gone.",
    "imagefetch_lease_renewals":
      "Tries to renew this instance's lease with the job store, by outcome.",
    "imagefetch_leases_lost": "Leases of this instance that were over before they were renewed.",
    "imagefetch_library_info": "Libraries that are linked, and this service, by version; always 1.",
    "imagefetch_log_dropped": "Log lines that could not be written, or not soon enough.",
    "imagefetch_news": "News told to the instances that share the job store, and heard from them.",
    "imagefetch_object_store_requests": "Tries of requests to the object store, by outcome.",
    "imagefetch_object_store_retries": "Requests to the object store that were sent again.",
    "imagefetch_object_store_seconds":
      "From a request to the object store to its response's header section, by method.",
    "imagefetch_oldest_running_job_seconds":
      "How long the oldest work under way has taken so far; 0 where there is none.",
    "imagefetch_oldest_variant_seconds":
      "How long the oldest rendering under way has taken so far; 0 where there is none.",
    "imagefetch_partial_bytes": "Bytes kept of broken-off transfers, to go on from.",
    "imagefetch_paused_origins": "Origins not asked for a while, as they were out of reach.",
    "imagefetch_queue_jobs":
      "Unfinished jobs by what they wait for (a worker, their time, room at their origin, an equal load elsewhere) or that they are loaded, up to 10,000 of each; with PostgreSQL.",
    "imagefetch_store_commit_operations": "Changes that one commit of the job store made durable.",
    "imagefetch_store_commit_seconds": "Time that one commit of the job store took.",
    "imagefetch_store_wait_seconds":
      "How long the first of a transaction's requests waited for a connection to PostgreSQL, by what the connection is for.",
    "imagefetch_traces":
      "Traces of jobs, by outcome: sent, failed as the collector took none, dropped as too many waited.",
    "imagefetch_variant_seconds": "Time that rendering one variant took, by its format.",
    "imagefetch_variants": "Variants asked for, by format and by what came of it.",
    "imagefetch_variants_rendering": "Variants being rendered.",
    "imagefetch_variants_waiting": "Variants that wait to be rendered.",
    "imagefetch_webhook_seconds": "From a webhook's try to its answer, or to there being none.",
    "imagefetch_webhook_tries": "Tries of webhooks, by what came of them.",
    "imagefetch_webhooks_ended":
      "Webhook messages that are sent no more, by whether they were delivered.",
    "imagefetch_webhooks_sending": "Webhook messages on their way.",
    "imagefetch_webhooks_waiting":
      "Webhook messages that are yet to be taken, counted up to 100,000.",
    "imagefetch_workers": "Workers: so much work can be under way at once.",
    "imagefetch_workers_stuck":
      "Work under way for longer than five minutes, or three times fetch.timeout; its log line says which.",
  ]
}
