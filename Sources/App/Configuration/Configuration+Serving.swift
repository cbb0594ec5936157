package import Jobs
package import Logging

extension Configuration {
  /// `server`: listening and serving.
  package struct Server: Sendable, Equatable {
    /// An IPv4 or IPv6 address, or `localhost`.
    package var host = "127.0.0.1"
    /// The port; 0 for any free one.
    package var port = 8080
    /// Threads that serve connections; 0 for one per core.
    package var threads = 0
    /// Maximum number of open connections.
    package var maxConnections = 10_000
    /// Maximum time from a request's first byte to its last.
    package var requestTimeout: Duration = .seconds(30)
    /// Maximum bytes of a request's body.
    package var maxBody = 32 << 20
    /// How long running jobs may continue when the service stops.
    package var drainTimeout: Duration = .seconds(20)
    /// TLS; both files or none.
    package var tls = TLS()
    /// Networks of proxies whose forwarding header fields name the client.
    package var trustedProxies: [String] = []
    /// Web origins whose pages may read responses (CORS); `*` for all.
    package var corsOrigins: [String] = []

    /// Whether only this machine can connect.
    package var isLoopback: Bool { AddressText.isLoopback(host) }
  }

  /// `server.tls`: files in PEM form.
  package struct TLS: Sendable, Equatable {
    /// The certificate with its chain.
    package var certificate: String?
    /// Its private key.
    package var key: String?
  }

  /// `auth`: tokens and rate limits of clients.
  package struct Auth: Sendable, Equatable {
    /// Whether clients on other machines need no token.
    package var disabled = false
    /// The tokens that are accepted. If empty, no token is needed.
    package var tokens: [Token] = []
    /// A file with more tokens, read again when it changes.
    package var tokensFile: String?
    /// The tokens read from `tokensFile`.
    package internal(set) var filedTokens: [Token] = []
    /// All tokens, including those of the file.
    package var all: [Token] { tokens + filedTokens }
    /// Whether `/metrics` needs no token.
    package var publicMetrics = false
    /// The rate limit for each token, or for each address if there are no tokens.
    package var rateLimit = RateLimit()
  }

  /// One entry of `auth.tokens`.
  package struct Token: Sendable, Equatable {
    /// The permissions of a token.
    package enum Scope: String, Sendable, Equatable, CaseIterable {
      /// The owner's jobs.
      case jobs
      /// The cache, the network state, the metrics and the jobs of all owners.
      case admin
    }

    /// The owner of the token's jobs, in the store and the log.
    package var name: String
    /// The SHA-256 of the token: 32 bytes.
    package var sha256: [UInt8]
    /// The file that the token was read from; nil if it was given as a hash.
    package var file: String?
    package var scopes: Set<Scope>
    /// Maximum number of the owner's queued jobs; nil for no limit except `jobs.max_queued`.
    package var maxQueued: Int?
    /// The highest priority of the owner's jobs; nil for any.
    package var maxPriority: Priority?
    /// Requests per second with this token; nil for `auth.rate_limit`.
    package var rate: Double?
    /// Maximum bytes fetched from origins for the owner in a day (UTC); nil for no limit.
    package var maxBytesPerDay: Int?
    /// Secrets that sign the owner's webhook messages; empty for those of `webhooks`.
    package var webhookSecrets: [WebhookSecret] = []
    /// The files that some of the secrets were read from.
    package var webhookSecretFiles: [String] = []

    /// Creates a token with its hash.
    package init(name: String, sha256: [UInt8], file: String? = nil, scopes: Set<Scope>) {
      (self.name, self.sha256, self.file, self.scopes) = (name, sha256, file, scopes)
    }
  }

  /// `auth.rate_limit`: a token bucket.
  package struct RateLimit: Sendable, Equatable {
    /// Requests added to the bucket per second; 0 for no rate limit.
    package var requestsPerSecond = 0.0
    /// The bucket's capacity in requests; 0 for one second's worth, at least one request.
    package var burst = 0
  }

  /// `api`: limits of single requests.
  package struct API: Sendable, Equatable {
    /// Maximum number of jobs in one array.
    package var maxBatch = 1000
    /// Maximum number of lines in one batch.
    package var maxBatchLines = 1_000_000
    /// Maximum number of unfinished batches of one owner.
    package var maxBatches = 1_000
    /// How long a batch that is not complete may receive no lines before it is closed.
    package var batchIdle: Duration = .seconds(3600)
    /// The longest `wait` that a request may ask for.
    package var maxWait: Duration = .seconds(60)
    /// The minimum time that an `Idempotency-Key` is kept.
    package var idempotencyTTL: Duration = .seconds(86_400)
  }

  /// `view`: `GET /image`.
  package struct View: Sendable, Equatable {
    /// Whether the route exists.
    package var enabled = false
    /// Keys that sign URLs, newest first, at least 16 bytes each. Read from `keysFile` if that is set.
    package var keys: [[UInt8]] = []
    /// A file with one key per line.
    package var keysFile: String?
  }

  /// `webhooks`: messages about finished jobs.
  package struct Webhooks: Sendable, Equatable {
    /// Secrets that sign messages. Each message has a signature for each secret, so that a new secret can be added before
    /// the old one is removed.
    package var secrets: [WebhookSecret] = []
    /// Files with more secrets, one per line.
    package var secretFiles: [String] = []
    /// The secrets read from `secretFiles`.
    var fileSecrets: [WebhookSecret] = []
    /// Whether receivers may have http URLs, not only https.
    package var allowHTTP = false
    /// CIDRs exempt from the built-in block list, for receivers only.
    package var allowNetworks: [String] = []
    /// Names (`example.org`) and subtrees (`*.example.org`) of receivers, in lower case; empty for all.
    package var allowHosts: [String] = []
    /// Ports of receivers; empty for all.
    package var allowPorts: [Int] = [443]
    /// Maximum number of one owner's waiting messages.
    package var maxWaiting = 100_000
    /// Maximum time of one attempt, from the name's lookup to the end of the response's header section.
    package var timeout: Duration = .seconds(15)
    /// How long to wait after each failed attempt. If the attempt after the last wait fails, the message is dropped.
    package var retry: [Duration] = WebhookSchedule.standard.waits
  }

  /// `network`: the initial network state.
  package struct Network: Sendable, Equatable {
    /// Whether low-data images are preferred.
    package var constrained = false
  }

  /// `tracing`: spans of jobs, sent with OTLP.
  package struct Tracing: Sendable, Equatable {
    /// The collector's URL without a path; nil to trace no job.
    package var endpoint: String?
    /// The share of jobs that are traced if the client sent no `traceparent`: 0…1.
    package var sample = 1.0
    /// Whether requests to origins carry the trace context.
    package var propagate = false
  }

  /// `log`: one record per line on standard error.
  package struct Log: Sendable, Equatable {
    /// Records below this level are not written.
    package var level: Logger.Level = .info
    package var format: LogFormat = .auto
  }
}
