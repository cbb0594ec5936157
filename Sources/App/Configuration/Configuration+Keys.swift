internal import API
internal import Engine
internal import Fetch
internal import HTTP
internal import Isolation
package import Settings

extension Configuration {
  package typealias Key = Setting<Configuration>

  /// The sections in the order of the documentation.
  private static let sections = [
    "server", "auth", "api", "jobs", "fetch", "webhooks", "destinations", "decode", "cache",
    "storage", "sources", "placeholders", "view", "cluster", "network", "log", "tracing",
  ]

  /// The purpose of a section, if the names of its keys do not explain it.
  package static let sectionDocs = [
    "auth.rate_limit": "For each token, or for each address if there are no tokens.",
    "jobs.retry_backoff":
      "The wait between attempts is doubled each time, with full jitter. Retry-After is obeyed up to the maximum.",
    "placeholders":
      "Image files that are served if an image is not available; null for a built-in image of 480 × 360.",
    "view":
      "GET /image, for <img src>. With tokens or keys, URLs must be signed: imagefetch sign creates them.",
    "cluster": "Several instances that share their jobs and images.",
    "log": "The log: one record per line on standard error.",
    "tracing": "A trace of each job, for an OpenTelemetry collector.",
  ]

  /// Every key, section by section: those of the modules, and the service's own. Files, environment variables, flags,
  /// printing and the documentation all use this table. The default of a key is the initial value of its property.
  package static let keys: [Key] = sections.flatMap { section in
    allKeys.filter { $0.section == section }
  }

  /// The keys in the order of their modules, which is their order within a section.
  package static let allKeys: [Key] =
    HTTPServer.Configuration.settings.map { Key($0, of: \.http) } + storageKeys
    + JobEngine.Configuration.settings.map { Key($0, of: \.engine) }
    + CurlFetcher.Configuration.settings.map { Key($0, of: \.fetcher) } + servingKeys
    + APIConfiguration.settings.map { Key($0, of: \.api) }
    + WebhookRules.settings.map { Key($0, of: \.webhookRules) }
    + IsolatedCodec.Configuration.settings.map { Key($0, of: \.decoders) }
}

extension Setting {
  /// The name of the outermost section.
  package var section: Substring { path.prefix { $0 != "." } }
}

extension Setting<Configuration> {
  /// The default, in YAML's flow style.
  package var defaultText: String { show(Configuration()) }
}
