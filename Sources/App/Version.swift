/// Ours; what `imagefetch version`, the logs and the default user agent say.
public let version = "0.1.0"
