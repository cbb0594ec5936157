package import API
package import Engine
package import Fetch
package import HTTP
internal import Isolation
package import Settings

/// All settings of the service: those of the modules, and the sections of the service itself. `Configuration.keys` lists
/// every key by name.
///
/// A new value has the defaults. ``load(file:environment:flags:)`` applies a file, the environment and flags.
package struct Configuration: Sendable {
  package var http = HTTPServer.Configuration()
  package var api = APIConfiguration()
  package var engine = JobEngine.Configuration()
  var webhookRules = WebhookRules()
  package var fetcher = CurlFetcher.Configuration()
  var decoders = IsolatedCodec.Configuration()

  var server = Server()
  package var auth = Auth()
  package var decode = Decode()
  var webhooks = Webhooks()
  var destinations: [Destination] = []
  package var storage = Storage()
  var sources = Sources()
  var placeholders = Placeholders()
  package var view = View()
  var cluster = Cluster()
  package var log = Log()
  var tracing = Tracing()

  package init() {
    fetcher.userAgent = "imagefetch/\(App.version)"
    webhooks.receivers.allowPorts = [443]
  }

  /// Sets all keys of some sections to their defaults.
  mutating func reset(_ sections: String...) {
    let defaults = Configuration()
    for key in Configuration.keys where sections.contains(String(key.section)) {
      key.copy(defaults, &self)
    }
  }
}

extension Configuration: Equatable {
  /// Compares the values of all keys, and the contents of the files that they name.
  package static func == (a: Configuration, b: Configuration) -> Bool {
    keys.allSatisfy { $0.isEqual(a, b) } && a.auth.filedTokens == b.auth.filedTokens
      && a.webhooks.fileSecrets == b.webhooks.fileSecrets
  }
}

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
  var section: Substring { path.prefix { $0 != "." } }
}

extension Setting<Configuration> {
  /// The default, in YAML's flow style.
  package var defaultText: String { show(Configuration()) }
}

extension Configuration {
  /// A value from the command line.
  package struct Flag: Sendable, Equatable {
    /// The flag with its dashes, for messages.
    package let name: String
    /// The key that it sets.
    let key: String
    /// The value as it was written.
    package let value: String

    /// A flag that sets a key.
    package init(name: String, key: String, value: String) {
      (self.name, self.key, self.value) = (name, key, value)
    }
  }

  /// The variable that `imagefetch get` reads its token from. It belongs to no key, and is accepted by all commands.
  package static let tokenVariable = SettingName.environmentPrefix + "TOKEN"

  /// Loads the configuration. Flags override the environment, which overrides the file, which overrides the defaults.
  ///
  /// The variable of a list contains its items separated by commas. That of `auth.tokens` contains YAML or JSON:
  /// `[{name: web, token_file: /run/secrets/web, scopes: [jobs]}]`. Relative paths start at the working directory.
  ///
  /// - Parameters:
  ///   - file: a YAML file of at most 1 MiB; nil for none.
  ///   - environment: all variables. A variable that starts with `IMAGEFETCH_` and belongs to no key is a mistake. The
  ///     exceptions are ``tokenVariable`` and the variables that Kubernetes sets for a Service named `imagefetch`.
  /// - Throws: All mistakes at once.
  package static func load(
    file: String? = nil, environment: [String: String] = [:], flags: [Flag] = []
  ) throws(Mistakes) -> Configuration {
    var loader = ConfigurationLoader()
    if let file { loader.read(file: file) }
    return try finish(&loader, environment, flags)
  }

  /// Loads the configuration from the text of a file.
  ///
  /// - Parameter name: the file's name in messages.
  package static func load(
    yaml: String, name: String, environment: [String: String] = [:], flags: [Flag] = []
  ) throws(Mistakes) -> Configuration {
    var loader = ConfigurationLoader()
    loader.read(Array(yaml.utf8), of: name)
    return try finish(&loader, environment, flags)
  }

  private static func finish(
    _ loader: inout ConfigurationLoader, _ environment: [String: String], _ flags: [Flag]
  ) throws(Mistakes) -> Configuration {
    loader.read(environment: environment)
    loader.read(flags: flags)
    loader.complete(from: environment)
    loader.checkRules()
    guard loader.mistakes.isEmpty else { throw Mistakes(all: loader.mistakes) }
    return loader.configuration
  }
}

extension Configuration {
  /// Every key with its value, as YAML. Secrets of tokens, signing keys and URLs are shown as `hidden`; everything else can
  /// be read again.
  package func effective() -> String {
    var lines: [String] = []
    var sections: [Substring] = []
    for key in Configuration.keys {
      let names = key.path.split(separator: ".")
      let own = names.dropLast()
      let shared = zip(sections, own).prefix { $0 == $1 }.count
      for depth in shared..<own.count {
        lines.append(String(repeating: "  ", count: depth) + own[depth] + ":")
      }
      sections = Array(own)
      let indent = String(repeating: "  ", count: own.count)
      lines.append(indent + names[own.count] + ": " + value(of: key))
    }
    return lines.joined(separator: "\n") + "\n"
  }

  /// `view.keys` is shown as empty if the keys were read from `view.keys_file`.
  private func value(of key: Key) -> String {
    key.path == "view.keys" && view.keysFile != nil ? "[]" : key.show(self)
  }
}
