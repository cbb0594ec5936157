/// The `# HELP` text of each metric. It is defined here, because the modules that count do not depend on Prometheus.
enum MetricHelp {
  /// Texts by metric name without `_total`.
  static let sentences: [String: String] = [
    "imagefetch_cache_bytes": "Bytes on disk of the images in the cache.",
    "imagefetch_cache_entries": "Responses and variants in the cache.",
    "imagefetch_cache_memory_bytes": "Bytes of cached images that are also in memory.",
    "imagefetch_cache_outcomes": "Finished jobs by cache outcome.",
    "imagefetch_canaries":
      "Test decodes that were made because no image had been decoded for a while.",
    "imagefetch_decode_seconds": "Computing time of one image's decode.",
    "imagefetch_decoders_ended": "Decoder processes that ended, by reason.",
    "imagefetch_decoders_started": "Decoder processes that were started.",
    "imagefetch_deliveries": "Images and variants delivered to destinations, by outcome.",
    "imagefetch_fetch_bytes": "Bytes of content received from origins.",
    "imagefetch_fetch_open_transfers": "Requests to origins in progress.",
    "imagefetch_fetch_requests": "Finished requests to origins, by outcome.",
    "imagefetch_http_request_duration_seconds":
      "Time from a client's request to its response, including the time spent waiting for a job.",
    "imagefetch_http_requests": "Client requests, by route, method and status.",
    "imagefetch_image_bytes": "Bytes of all stored images.",
    "imagefetch_images": "Stored images; equal images count once.",
    "imagefetch_instance_info": "This instance's name and version; always 1.",
    "imagefetch_instance_leads":
      "1 if this instance carries out the tasks that one instance does for the whole cluster.",
    "imagefetch_job_seconds": "Time from a job's first start on a worker to its end.",
    "imagefetch_jobs": "Stored jobs, by phase.",
    "imagefetch_jobs_fenced":
      "Results that were discarded because another instance had claimed the job.",
    "imagefetch_jobs_finished": "Finished jobs, by phase and, for failures, by error code.",
    "imagefetch_jobs_joined": "Jobs that joined an equal job's load.",
    "imagefetch_jobs_running": "Loads in progress; a load serves one job or several equal ones.",
    "imagefetch_jobs_submitted": "Accepted jobs.",
    "imagefetch_jobs_taken_over": "Jobs of lost instances that this instance queued again.",
    "imagefetch_lease_renewals":
      "Attempts to renew this instance's lease in the job store, by outcome.",
    "imagefetch_leases_lost": "Leases of this instance that expired before they were renewed.",
    "imagefetch_library_info": "Versions of imagefetch and of the linked libraries; always 1.",
    "imagefetch_log_dropped":
      "Log lines that were dropped because they could not be written, or not fast enough.",
    "imagefetch_news":
      "Events published to the instances that share the job store, and events received from them.",
    "imagefetch_object_store_requests": "Attempts of requests to the object store, by outcome.",
    "imagefetch_object_store_retries": "Requests to the object store that were repeated.",
    "imagefetch_object_store_seconds":
      "Time from a request to the object store to the response's header section, by method.",
    "imagefetch_oldest_running_job_seconds":
      "Age of the oldest load in progress; 0 if there is none.",
    "imagefetch_oldest_variant_seconds":
      "Age of the oldest rendering in progress; 0 if there is none.",
    "imagefetch_partial_bytes": "Bytes of partial transfers that are kept for resuming.",
    "imagefetch_paused_origins":
      "Origins that receive no requests for a while because several requests in a row failed.",
    "imagefetch_queue_jobs":
      "Unfinished jobs, by state: waiting for a worker, for their start time, for a permit of their origin or for an equal load on another instance, or loading. Counted up to 10,000 per state; only with PostgreSQL.",
    "imagefetch_store_commit_operations": "Changes in one commit of the job store.",
    "imagefetch_store_commit_seconds": "Time of one commit of the job store.",
    "imagefetch_store_wait_seconds":
      "Time that the first request of a transaction waited for a PostgreSQL connection, by purpose of the connection.",
    "imagefetch_traces":
      "Traces of jobs, by outcome: sent, failed because the collector refused them, dropped because the queue was full.",
    "imagefetch_variant_seconds": "Time to render one variant, by format.",
    "imagefetch_variants": "Requested variants, by format and outcome.",
    "imagefetch_variants_rendering": "Variants that are being rendered.",
    "imagefetch_variants_waiting": "Variants that wait to be rendered.",
    "imagefetch_webhook_seconds": "Time of one webhook attempt, until its response or error.",
    "imagefetch_webhook_tries": "Webhook attempts, by outcome.",
    "imagefetch_webhooks_ended": "Webhook messages that were delivered or given up, by outcome.",
    "imagefetch_webhooks_sending": "Webhook messages that are being sent.",
    "imagefetch_webhooks_waiting":
      "Webhook messages that are not delivered yet, counted up to 100,000.",
    "imagefetch_workers": "Number of workers: the maximum number of concurrent loads.",
    "imagefetch_workers_stuck":
      "Loads that have run for longer than five minutes or three times fetch.timeout; the log names them.",
  ]
}

/// Names, labels and numbers in Prometheus's text format.
enum MetricName {
  /// Replaces characters that are not allowed (`[a-zA-Z_:][a-zA-Z0-9_:]*`) by `_`.
  static func sanitized(_ label: String) -> String {
    let name = String(
      label.unicodeScalars.map { scalar -> Character in
        isNameScalar(scalar) || scalar == ":" ? Character(scalar) : "_"
      })
    return name.first.map { $0.isNumber } ?? true ? "_" + name : name
  }

  /// The name of a counter, which ends in `_total`.
  static func counter(_ label: String) -> String {
    let name = sanitized(label)
    return name.hasSuffix("_total") ? name : name + "_total"
  }

  /// The name of a timer, which ends in `_seconds`.
  static func timer(_ label: String) -> String {
    let name = sanitized(label)
    return name.hasSuffix("_seconds") ? name : name + "_seconds"
  }

  /// The labels as written between braces, sorted by name. If a name occurs twice, its last value is used.
  static func labels(_ dimensions: [(String, String)]) -> String {
    if dimensions.isEmpty { return "" }
    var values: [String: String] = [:]
    for (label, value) in dimensions { values[labelName(label)] = value }
    return values.sorted { $0.key < $1.key }
      .map { "\($0.key)=\"\(escapedValue($0.value))\"" }
      .joined(separator: ",")
  }

  /// The text of a `# HELP` line, with backslashes and line feeds escaped.
  static func escapedHelp(_ text: String) -> String {
    escaped(text, quotes: false)
  }

  /// A sample's value.
  static func number(_ value: Double) -> String {
    if value.isNaN { return "NaN" }
    if value.isInfinite { return value < 0 ? "-Inf" : "+Inf" }
    if let whole = Int64(exactly: value) { return "\(whole)" }
    return "\(value)"
  }

  /// Prefixes reserved label names: `le` belongs to histograms, names that start with `__` to Prometheus.
  private static func labelName(_ label: String) -> String {
    let name = sanitized(label).replacing(":", with: "_")
    return name == "le" || name.hasPrefix("__") ? "label_" + name : name
  }

  private static func escapedValue(_ text: String) -> String {
    let limit = 256
    let scalars = text.unicodeScalars
    return escaped(scalars.count > limit ? String(scalars.prefix(limit)) : text, quotes: true)
  }

  private static func escaped(_ text: String, quotes: Bool) -> String {
    var result = ""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\\": result += "\\\\"
      case "\n": result += "\\n"
      case "\"" where quotes: result += "\\\""
      default: result.unicodeScalars.append(scalar)
      }
    }
    return result
  }

  private static func isNameScalar(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar {
    case "a"..."z", "A"..."Z", "0"..."9", "_": true
    default: false
    }
  }
}
