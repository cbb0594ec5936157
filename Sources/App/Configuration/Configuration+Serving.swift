package import API
internal import Fetch
internal import Jobs
package import Logging
internal import Settings

extension Configuration {
  /// `server`: what the HTTP server does not need to know. `HTTPServer.Configuration` has the rest.
  struct Server: Sendable {
    var drainTimeout: Duration = .seconds(20)
    var tls = TLS()
    var trustedProxies: [CIDR] = []
  }

  /// `server.tls`: files in PEM form.
  struct TLS: Sendable {
    var certificate: String?
    var key: String?
  }

  /// `auth`: tokens and rate limits of clients.
  package struct Auth: Sendable {
    var disabled = false
    package var tokens: [Token] = []
    var tokensFile: String?
    /// The tokens read from `tokensFile`.
    package internal(set) var filedTokens: [Token] = []
    /// All tokens, including those of the file.
    var all: [Token] { tokens + filedTokens }
    package var rateLimit = RateLimit()
  }

  /// One entry of `auth.tokens`.
  package struct Token: Sendable, Equatable {
    /// The owner of the token's jobs, in the store and the log.
    package var name: String
    /// The SHA-256 of the token: 32 bytes.
    package var sha256: [UInt8]
    /// The file that the token was read from; nil if it was given as a hash.
    package var file: String?
    package var scopes: Set<API.Scope>
    /// Maximum number of the owner's queued jobs; nil for no limit except `jobs.max_queued`.
    var maxQueued: Int?
    /// The highest priority of the owner's jobs; nil for any.
    var maxPriority: Priority?
    /// Requests per second with this token; nil for `auth.rate_limit`.
    var rate: Double?
    /// Maximum bytes fetched from origins for the owner in a day (UTC); nil for no limit.
    var maxBytesPerDay: Int?
    /// Secrets that sign the owner's webhook messages; empty for those of `webhooks`.
    var webhookSecrets: [WebhookSecret] = []
    /// The files that some of the secrets were read from.
    var webhookSecretFiles: [String] = []
  }

  /// `auth.rate_limit`: a token bucket.
  package struct RateLimit: Sendable {
    package var requestsPerSecond = 0.0
    var burst = 0
  }

  /// `view`: `GET /image`.
  package struct View: Sendable {
    package var keys: [[UInt8]] = []
    package var keysFile: String?
  }

  /// `webhooks`: messages about finished jobs.
  struct Webhooks: Sendable {
    var secrets: [WebhookSecret] = []
    var secretFiles: [String] = []
    /// The secrets read from `secretFiles`.
    var fileSecrets: [WebhookSecret] = []
    /// Addresses of receivers. Their schemes and denied addresses come from other keys (``Configuration/webhookPolicy``).
    var receivers = AddressPolicy()
  }

  /// `tracing`: spans of jobs, sent with OTLP.
  struct Tracing: Sendable {
    var endpoint: String?
    var sample = 1.0
    var propagate = false
  }

  /// `log`: one record per line on standard error.
  package struct Log: Sendable {
    package var level: Logger.Level = .info
    package var format: LogFormat = .auto
  }
}

extension Configuration {
  /// The keys of the sections above, which also explain the properties.
  static let servingKeys: [Key] = [
    Setting(
      "server.drain_timeout", \.server.drainTimeout, .duration(.zero ... .hours(1)),
      "How long running jobs may continue when the service stops; the others are queued again."),
    Setting(
      "server.tls.certificate", \.server.tls.certificate, .optional(.file),
      "The certificate with its chain, PEM. Needs the key too."),
    Setting(
      "server.tls.key", \.server.tls.key, .optional(.file),
      "Its private key, PEM."),
    Setting(
      "server.trusted_proxies", \.server.trustedProxies, .list(.network),
      "Networks of proxies whose Forwarded or X-Forwarded-For names the client."),
    Setting(
      "auth.disabled", \.auth.disabled, .boolean,
      "Let every client that can connect use the service without a token."),
    Setting(
      "auth.tokens", \.auth.tokens, .tokens,
      """
      Tokens of clients. Without tokens, all clients are allowed, but only on loopback.
        tokens:
          - name: web                  # the owner of its jobs: 1…64 of A-Z a-z 0-9 . _ -
            sha256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
            scopes: [jobs]
          - name: operator
            token_file: /run/secrets/operator_token      # the token itself; surrounding white space is ignored
            scopes: [jobs, admin]      # admin: the cache, the network, the metrics, the jobs of all owners
          - name: importer
            sha256: "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"
            scopes: [jobs]
            max_queued: 10000          # queued jobs
            max_priority: low
            rate: 5                    # requests per second, instead of rate_limit
            max_bytes_per_day: 10GB    # fetched from origins, per day in UTC
      To create a token and its hash: t=$(openssl rand -hex 32); echo $t; printf %s $t | sha256sum | cut -d ' ' -f 1
      As a variable: IMAGEFETCH_AUTH_TOKENS='[{name: web, sha256: "…", scopes: [jobs]}]'
      """),
    Setting(
      "auth.tokens_file", \.auth.tokensFile, .optional(.file),
      "A file with more tokens, a list as above; read again when it changes, and on SIGHUP."),
    Setting(
      "auth.rate_limit.requests_per_second", \.auth.rateLimit.requestsPerSecond,
      .number(0...1_000_000),
      "Average requests per second; 0 for no limit."),
    Setting(
      "auth.rate_limit.burst", \.auth.rateLimit.burst, .integer(0...1_000_000),
      "Requests that may exceed the average in a burst; 0 for one second's worth."),
    Setting(
      "webhooks.secrets", \.webhooks.secrets, .list(.webhookSecret),
      """
      Secrets that sign messages (Standard Webhooks). Each message has a signature for each secret, so that a new secret can be added before the old one is removed. Without secrets messages are not signed.
      To create a secret: echo whsec_$(openssl rand -base64 32)
      """),
    Setting(
      "webhooks.secret_files", \.webhooks.secretFiles, .list(.file),
      "Files with such secrets, one per line. A token can have its own secrets in auth.tokens, as webhook_secrets or webhook_secret_files. They replace these secrets for its jobs."
    ),
    Setting(
      "webhooks.allow_networks", \.webhooks.receivers.allowNetworks, .list(.network),
      "Networks exempt from the built-in block list, for receivers only; fetch.allow_networks does not apply to them. fetch.deny_networks and fetch.deny_hosts apply to both."
    ),
    Setting(
      "webhooks.allow_hosts", \.webhooks.receivers.allowHosts, .list(.hostPattern),
      "Allowed hosts of receivers; empty for all. The address rules still apply."),
    Setting(
      "webhooks.allow_ports", \.webhooks.receivers.allowPorts, .ports,
      "Allowed ports of receivers; empty for all."),
    Setting(
      "log.level", \.log.level, .choice(),
      "Records below this level are not written."),
    Setting(
      "log.format", \.log.format, .choice(),
      "auto means text on a terminal, otherwise json."),
    Setting(
      "tracing.endpoint", \.tracing.endpoint, .optional(.endpoint),
      "The collector's URL for OTLP over HTTP, such as http://127.0.0.1:4318; null to trace no job."
    ),
    Setting(
      "tracing.sample", \.tracing.sample, .number(0...1),
      "Share of jobs that are traced if the client sent no traceparent; otherwise the client decides."
    ),
    Setting(
      "tracing.propagate", \.tracing.propagate, .boolean,
      "Whether requests to all origins carry the trace in traceparent."),
    Setting(
      "fetch.user_agent", \.fetcher.userAgent, .userAgent,
      "The User-Agent field; <version> is replaced by the version of imagefetch."),
    Setting(
      "view.keys", \.view.keys, .list(.secretHex(16...1024)),
      "Signing keys, newest first; openssl rand -hex 32 creates one."),
    Setting(
      "view.keys_file", \.view.keysFile, .optional(.file),
      "A file with the keys, one per line; set either this or keys."),
  ]
}
