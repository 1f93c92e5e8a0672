//! What tokens are checked with: a secret, public keys, or both.

use crate::secret::{Ending, Role, Secret};
use crate::signed::{self, Holder, PublicKeys, Signed};

/// A secret makes and checks tokens. Public keys check signed tokens only.
#[derive(Clone, Debug)]
pub struct TokenKeys {
    secret: Option<Secret>,
    public: Option<PublicKeys>,
}

/// Why a token opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Expired,
    /// It is wrong, or not one for the request.
    Forbidden,
}

/// The caller of a query, as far as the token tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Of a token that names its tenant.
    Tenant(String),
    /// It reads all tenants.
    Producer,
    /// It may be of any tenant of the secret. Only a comparison with the tenant that the query names tells.
    Unnamed,
}

/// The holder of a token, as far as it tells.
enum Known {
    Holder(Holder),
    /// It has no expiry, and does not name its holder. Only a comparison tells.
    Unnamed,
}

impl TokenKeys {
    /// `None`: requests need no token.
    pub fn new(secret: Option<Secret>, public: Option<PublicKeys>) -> Option<TokenKeys> {
        (secret.is_some() || public.is_some()).then_some(TokenKeys { secret, public })
    }

    /// Checks that a token is of one of these roles.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(&self, token: &str, roles: &[Role<'_>], now_s: u64) -> Result<(), Refused> {
        let is_one = match self.known(token, now_s)? {
            Known::Holder(holder) => roles.contains(&holder.role()),
            Known::Unnamed => roles.iter().any(|role| self.has_made(*role, token)),
        };
        if is_one { Ok(()) } else { Err(Refused::Forbidden) }
    }

    /// The caller of a query with a token.
    ///
    /// # Errors
    /// [`Refused`]: no query may be asked with it.
    pub fn caller(&self, token: &str, now_s: u64) -> Result<Caller, Refused> {
        match self.known(token, now_s)? {
            Known::Holder(Holder::Tenant(tenant)) => Ok(Caller::Tenant(tenant)),
            Known::Holder(Holder::Producer) => Ok(Caller::Producer),
            Known::Holder(Holder::Operator | Holder::Follower) => Err(Refused::Forbidden),
            Known::Unnamed if self.has_made(Role::Producer, token) => Ok(Caller::Producer),
            Known::Unnamed => {
                let may_be_one = self.secret.as_ref().is_some_and(|secret| secret.has_form_of_a_token(token));
                if may_be_one { Ok(Caller::Unnamed) } else { Err(Refused::Forbidden) }
            }
        }
    }

    fn known(&self, token: &str, now_s: u64) -> Result<Known, Refused> {
        if signed::is_signed(token) {
            let public = self.public.as_ref().ok_or(Refused::Forbidden)?;
            return match public.judge(token, now_s) {
                Signed::Valid(holder) => Ok(Known::Holder(holder)),
                Signed::Expired => Err(Refused::Expired),
                Signed::Wrong => Err(Refused::Forbidden),
            };
        }
        let secret = self.secret.as_ref().ok_or(Refused::Forbidden)?;
        match secret.judge_ending(token, now_s) {
            Some(Ending::Valid { tenant }) => Ok(Known::Holder(Holder::Tenant(tenant))),
            Some(Ending::Expired) => Err(Refused::Expired),
            Some(Ending::Wrong) => Err(Refused::Forbidden),
            None => Ok(Known::Unnamed),
        }
    }

    fn has_made(&self, role: Role<'_>, token: &str) -> bool {
        self.secret.as_ref().is_some_and(|secret| secret.is_token(role, token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_check_tokens_of_their_kind_only() {
        let secret = Secret::new(b"0123456789abcdef").unwrap();
        let other = Secret::new(b"0123456789abcdeX").unwrap();
        let keys = TokenKeys::new(Some(secret.clone()), None).unwrap();
        let tenant = [Role::Tenant("a")];
        assert_eq!(keys.check(&secret.token(Role::Tenant("a")), &tenant, 0), Ok(()));
        assert_eq!(keys.check(&secret.ending_token("a", 9), &tenant, 0), Ok(()));
        assert_eq!(keys.check(&secret.ending_token("a", 9), &tenant, 9), Err(Refused::Expired));
        assert_eq!(keys.check(&other.token(Role::Tenant("a")), &tenant, 0), Err(Refused::Forbidden));
        assert_eq!(keys.check("signed.producer..never.00", &[Role::Producer], 0), Err(Refused::Forbidden));
        assert_eq!(keys.caller(&secret.ending_token("a", 9), 0), Ok(Caller::Tenant("a".to_owned())));
        assert_eq!(keys.caller(&secret.token(Role::Producer), 0), Ok(Caller::Producer));
        assert_eq!(keys.caller(&secret.token(Role::Tenant("a")), 0), Ok(Caller::Unnamed));
        assert_eq!(keys.caller(&secret.token(Role::Follower), 0), Err(Refused::Forbidden));
        assert!(TokenKeys::new(None, None).is_none());
    }
}
